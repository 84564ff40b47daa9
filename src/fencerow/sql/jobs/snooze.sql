-- snooze: running -> scheduled | ready | cancelled when that was asked
-- fence:   hold(): (lease, job, generation) and a lease that is alive after the lock wait
-- locks:   tickets FOR UPDATE in job order, until commit; then unique keys in key order
-- params:  p_delays: time until the job is ready again; p_errors: reasons or NULL; the attempt is given back
-- returns: one answer per input, in their order; anything but accepted and already wrote nothing but a refusal
-- plan:    running_pkey, one probe per ticket; moved by tid, job_pkey and task_pkey for the policy
CREATE OR REPLACE FUNCTION fencerow.snooze(
  p_lease bigint, p_jobs bigint[], p_generations bigint[], p_delays interval[], p_errors text[] DEFAULT NULL
) RETURNS SETOF fencerow.answer
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
DECLARE
  v_grip fencerow.grip := fencerow.hold(p_lease, p_jobs, p_generations);
  v_kinds text[] := array_fill('snoozed'::text, ARRAY[cardinality(p_jobs)]);
BEGIN
  PERFORM fencerow.end_attempts(v_grip.tids, v_grip.at, v_kinds, p_errors, p_delays, false);
  RETURN QUERY SELECT * FROM fencerow.answers(
    'snooze', p_lease, p_jobs, p_generations, v_grip.tids, v_kinds, NULL, p_errors);
END
$body$;
