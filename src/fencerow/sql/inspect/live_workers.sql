-- live_workers: worker processes that hold a lease now. A row in worker alone proves nothing.
CREATE OR REPLACE FUNCTION fencerow.live_workers() RETURNS TABLE (
  name text, host text, pid integer, version text, queues text[], tasks text[], slots integer, started_at timestamptz,
  lease_until timestamptz
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT w.name, w.host, w.pid, w.version, w.queues, w.tasks, w.slots, w.started_at, max(l.until)
  FROM fencerow.worker AS w JOIN fencerow.lease AS l ON l.worker = w.name
  WHERE l.until > fencerow.now() AND NOT l.alone
  GROUP BY w.name
$body$;
