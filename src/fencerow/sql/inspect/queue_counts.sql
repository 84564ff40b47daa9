-- queue_counts: every queue that has a live job, a setting or a live worker, with its counts by state (ended ones are not
-- counted: that would read history), the age of its oldest ready job in seconds, and who serves it.
CREATE OR REPLACE FUNCTION fencerow.queue_counts() RETURNS TABLE (
  queue text, ready bigint, scheduled bigint, running bigint, suspects bigint, oldest_seconds double precision,
  paused_at timestamptz, paused_by text, workers bigint
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  WITH y AS (
    SELECT r.queue, count(*) AS n, count(*) FILTER (WHERE r.suspect) AS suspects, min(r.since) AS oldest
    FROM fencerow.ready AS r GROUP BY r.queue
  ), s AS (
    SELECT x.queue, count(*) AS n FROM fencerow.scheduled AS x GROUP BY x.queue
  ), u AS (
    SELECT j.queue, count(*) AS n FROM fencerow.running AS r JOIN fencerow.job AS j ON j.id = r.job_id GROUP BY j.queue
  ), w AS (
    SELECT q.queue, count(*) AS n FROM fencerow.live_workers() AS l CROSS JOIN LATERAL unnest(l.queues) AS q(queue) GROUP BY q.queue
  ), names AS (
    SELECT y.queue FROM y UNION SELECT s.queue FROM s UNION SELECT u.queue FROM u UNION SELECT w.queue FROM w
    UNION SELECT q.name FROM fencerow.queue AS q
  )
  SELECT n.queue, coalesce(y.n, 0), coalesce(s.n, 0), coalesce(u.n, 0), coalesce(y.suspects, 0),
         extract(epoch FROM fencerow.now() - y.oldest)::double precision, q.paused_at, q.paused_by, coalesce(w.n, 0)
  FROM names AS n
  LEFT JOIN y ON y.queue = n.queue LEFT JOIN s ON s.queue = n.queue LEFT JOIN u ON u.queue = n.queue
  LEFT JOIN w ON w.queue = n.queue LEFT JOIN fencerow.queue AS q ON q.name = n.queue
  ORDER BY n.queue
$body$;
