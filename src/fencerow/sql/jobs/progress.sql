-- progress: running -> running
-- fence:   hold(): (lease, job, generation) and a lease that is alive after the lock wait
-- locks:   the ticket FOR UPDATE, until commit
-- params:  p_lease, p_job, p_generation, p_progress 0..1, p_note at most 500 characters
-- returns: one answer
-- plan:    running_pkey, one probe; HOT
CREATE OR REPLACE FUNCTION fencerow.progress(
  p_lease bigint, p_job bigint, p_generation bigint, p_progress real, p_note text DEFAULT NULL
) RETURNS fencerow.answer
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
BEGIN
  IF v_grip.tids[1] IS NULL THEN
    RETURN fencerow.verdict(p_lease, p_job, p_generation, 'progress', NULL, NULL, NULL);
  END IF;
  UPDATE fencerow.running AS r SET progress = p_progress, note = p_note WHERE r.ctid = v_grip.tids[1];
  RETURN ROW(p_job, p_generation, 'accepted', NULL, NULL, NULL, NULL)::fencerow.answer;
END
$body$;
