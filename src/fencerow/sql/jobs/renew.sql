-- renew: running -> running (all tickets of a lease at once, by its one row)
-- fence:   the lease itself: an ended lease is never revived
-- locks:   lease row FOR NO KEY UPDATE (claims go on, expire passes over it), waited for at most 1/32 of the lease or 1 s;
--          the clock is read after the lock
-- params:  p_lease; p_held: digest of the tickets that the process holds (held_digest), NULL: do not compare
-- returns: one row: the new end, seconds left, jobs whose cancel was requested, and, when the digest differs, all tickets
--          under the lease (jobs, generations; empty arrays: none). No row: the lease is over
-- plan:    lease_pkey, HOT; running_cancel; running_pkey by lease only when asked to compare
CREATE OR REPLACE FUNCTION fencerow.renew(p_lease bigint, p_held text DEFAULT NULL) RETURNS TABLE (
  until timestamptz, seconds double precision, cancelling bigint[], jobs bigint[], generations integer[]
)
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $body$
#variable_conflict use_column
DECLARE
  v_at timestamptz;
BEGIN
  PERFORM fencerow.require_read_committed();
  PERFORM set_config('lock_timeout', least(1000, extract(epoch FROM l.length) * 1000 / 32)::integer::text, true)
  FROM fencerow.lease AS l WHERE l.id = p_lease;
  PERFORM FROM fencerow.lease AS l WHERE l.id = p_lease FOR NO KEY UPDATE;
  v_at := fencerow.now();
  UPDATE fencerow.lease AS l SET until = v_at + l.length WHERE l.id = p_lease AND l.until > v_at RETURNING l.until INTO until;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  seconds := extract(epoch FROM until - v_at);
  cancelling := ARRAY(SELECT r.job_id FROM fencerow.running AS r WHERE r.lease_id = p_lease AND r.cancel_requested);
  IF p_held IS NOT NULL AND p_held <> fencerow.held_digest(p_lease) THEN
    SELECT coalesce(array_agg(r.job_id ORDER BY r.job_id), '{}'), coalesce(array_agg(r.generation ORDER BY r.job_id), '{}')
    INTO jobs, generations
    FROM fencerow.running AS r WHERE r.lease_id = p_lease;
  END IF;
  RETURN NEXT;
END
$body$;
