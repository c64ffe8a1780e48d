-- What came too late for its minute or its session.  Nothing is lost: it is here.
CREATE MATERIALIZED VIEW late_orders AS SELECT * FROM orders_clean WHERE late;
CREATE MATERIALIZED VIEW late_clicks AS SELECT * FROM clicks_clean WHERE late;
