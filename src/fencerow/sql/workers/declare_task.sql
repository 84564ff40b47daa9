-- declare_task: write a task's policy where expiry and enqueues from any language find it. Only a change is written.
CREATE OR REPLACE FUNCTION fencerow.declare_task(
  p_name text, p_queue text, p_priority integer, p_max_attempts integer, p_on_lost text,
  p_backoff_base interval, p_backoff_cap interval, p_timeout interval, p_keep interval, p_keep_failed interval
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
BEGIN
  INSERT INTO fencerow.task AS t
    (name, queue, priority, max_attempts, on_lost, backoff_base, backoff_cap, timeout, keep, keep_failed, updated_at)
  VALUES (p_name, p_queue, p_priority, p_max_attempts, p_on_lost, p_backoff_base, p_backoff_cap, p_timeout, p_keep,
          p_keep_failed, fencerow.now())
  ON CONFLICT (name) DO UPDATE SET
    queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts, on_lost = excluded.on_lost,
    backoff_base = excluded.backoff_base, backoff_cap = excluded.backoff_cap, timeout = excluded.timeout,
    keep = excluded.keep, keep_failed = excluded.keep_failed, updated_at = excluded.updated_at
  WHERE (t.queue, t.priority, t.max_attempts, t.on_lost, t.backoff_base, t.backoff_cap, t.timeout, t.keep, t.keep_failed)
    IS DISTINCT FROM (excluded.queue, excluded.priority, excluded.max_attempts, excluded.on_lost, excluded.backoff_base,
                      excluded.backoff_cap, excluded.timeout, excluded.keep, excluded.keep_failed);
  RETURN FOUND;
END
$body$;
