-- What was taken in each minute, by currency, of orders that were on time.  A minute is closed, and appears here,
-- when an order 20 minutes younger has come.
CREATE STREAMING TABLE revenue_per_minute AS
SELECT window.start AS minute, currency, count(*) AS orders, sum(amount) AS amount
FROM STREAM(orders_clean) WATERMARK at DELAY OF INTERVAL 20 MINUTES
WHERE NOT late
GROUP BY window(at, '1 minute'), currency;
