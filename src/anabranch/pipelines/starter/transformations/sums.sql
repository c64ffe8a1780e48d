CREATE MATERIALIZED VIEW sums AS SELECT number % 2 AS remainder, count(*) AS count, sum(number) AS sum
FROM numbers GROUP BY number % 2;
