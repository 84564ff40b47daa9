-- enter: running -> running (the first statement of job.commit(): the ticket stays locked until that transaction ends)
-- fence:   hold(): (lease, job, generation) and a lease that is alive after the lock wait
-- locks:   the ticket FOR UPDATE, until commit: expire passes over it, a second enter waits
-- params:  p_lease, p_job, p_generation
-- returns: nothing; raises QF003 with the answer as JSON in DETAIL when the claim is lost, which aborts the transaction
--          (and its refusal row: the worker writes that afterwards by refuse())
-- plan:    running_pkey, one probe
CREATE OR REPLACE FUNCTION fencerow.enter(p_lease bigint, p_job bigint, p_generation bigint) RETURNS void
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
  v_grip fencerow.grip := fencerow.hold(p_lease, ARRAY[p_job], ARRAY[p_generation]);
  v_answer fencerow.answer;
BEGIN
  IF v_grip.tids[1] IS NULL THEN
    v_answer := fencerow.verdict(p_lease, p_job, p_generation, 'commit', NULL, NULL, NULL);
    RAISE EXCEPTION 'the claim of job % generation % is lost: %', p_job, p_generation, v_answer.verdict
      USING ERRCODE = 'QF003', DETAIL = to_json(v_answer)::text;
  END IF;
END
$body$;
