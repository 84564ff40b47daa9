-- enqueue_child: nothing -> ready | scheduled (when its time is ahead), by the handler of a running job
-- fence:   hold(): (lease, job, generation) of the parent and a lease that is alive after the lock wait; refused: nothing is
--          enqueued
-- locks:   the parent's ticket FOR UPDATE, until commit; then as enqueue_many
-- params:  p_lease, p_job, p_generation of the parent; everything else as enqueue_many
-- returns: per child its id and whether this call created it, with the answer accepted; when refused one row without a child
-- plan:    running_pkey, one probe; then as enqueue_many
CREATE OR REPLACE FUNCTION fencerow.enqueue_child(
  p_lease bigint, p_job bigint, p_generation bigint,
  tasks text[], payloads jsonb[], queues text[] DEFAULT NULL, priorities integer[] DEFAULT NULL,
  run_ats timestamptz[] DEFAULT NULL, run_ins interval[] DEFAULT NULL, max_attempts integer[] DEFAULT NULL,
  timeouts interval[] DEFAULT NULL, on_losts text[] DEFAULT NULL, tags jsonb[] DEFAULT NULL, headers jsonb[] DEFAULT NULL,
  idempotency_keys text[] DEFAULT NULL, unique_keys text[] DEFAULT NULL, unique_untils text[] DEFAULT NULL,
  unique_fors interval[] DEFAULT NULL, on_conflicts text[] DEFAULT NULL
) RETURNS TABLE (
  job_id bigint, generation bigint, verdict text, current integer, state text, lease_until timestamptz, owner text,
  id bigint, created boolean
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
  v_grip fencerow.grip := fencerow.hold(p_lease, ARRAY[p_job], ARRAY[p_generation]);
BEGIN
  IF v_grip.tids[1] IS NULL THEN
    RETURN QUERY SELECT v.job_id, v.generation, v.verdict, v.current, v.state, v.lease_until, v.owner, NULL::bigint, NULL::boolean
      FROM fencerow.verdict(p_lease, p_job, p_generation, 'child', NULL, NULL, NULL) AS v;
    RETURN;
  END IF;
  RETURN QUERY SELECT p_job, p_generation, 'accepted', NULL::integer, NULL::text, NULL::timestamptz, NULL::text, e.id, e.created
    FROM fencerow.enqueue_many(
      tasks, payloads, queues, priorities, run_ats, run_ins, max_attempts, timeouts, on_losts, tags, headers,
      idempotency_keys, unique_keys, unique_untils, unique_fors, on_conflicts, p_job) AS e;
END
$body$;
