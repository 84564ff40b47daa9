-- register: a worker process tells who it is. It decides nothing: whether it lives is told by its leases.
CREATE OR REPLACE FUNCTION fencerow.register(
  p_name text, p_host text, p_pid integer, p_version text, p_queues text[], p_tasks text[], p_slots integer
) RETURNS void
LANGUAGE sql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
  INSERT INTO fencerow.worker (name, host, pid, version, queues, tasks, slots, started_at)
  VALUES (p_name, p_host, p_pid, p_version, p_queues, p_tasks, p_slots, fencerow.now())
  ON CONFLICT (name) DO NOTHING
$body$;
