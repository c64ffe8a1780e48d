-- Sessions: a user's clicks with no 10 minutes between one and the next.  A session appears here when it is over.
CREATE STREAMING TABLE sessions AS
SELECT user, session_window.start AS start, session_window.end AS end, count(*) AS clicks
FROM STREAM(clicks_clean) WATERMARK at DELAY OF INTERVAL 20 MINUTES
WHERE NOT late
GROUP BY session_window(at, '10 minutes'), user;
