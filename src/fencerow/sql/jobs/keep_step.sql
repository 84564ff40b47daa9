-- keep_step: running -> running (a result that no later attempt computes again)
-- fence:   hold(): (lease, job, generation) and a lease that is alive after the lock wait
-- locks:   the ticket FOR UPDATE, until commit: two attempts of one job never write steps at the same time
-- params:  p_lease, p_job, p_generation; p_place: which step of the handler it is, from 1; p_name; p_code: the function that
--          made it; p_result: JSON text
-- returns: one answer; the same step sent again is accepted. Raises QF007 when this name or this place keeps another step
-- plan:    running_pkey, step_pkey and step_job_id_place_key, one probe each
CREATE OR REPLACE FUNCTION fencerow.keep_step(
  p_lease bigint, p_job bigint, p_generation bigint, p_place integer, p_name text, p_code text, p_result text
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
    RETURN fencerow.verdict(p_lease, p_job, p_generation, 'step', NULL, NULL, NULL);
  END IF;
  INSERT INTO fencerow.step (job_id, name, place, generation, kept_at, code, result)
  VALUES (p_job, p_name, p_place, p_generation, v_grip.at, p_code, p_result)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND AND NOT EXISTS (
    SELECT FROM fencerow.step AS s
    WHERE s.job_id = p_job AND s.name = p_name
      AND (s.place, s.generation, s.code, s.result) = (p_place, p_generation, p_code, p_result)
  ) THEN
    RAISE EXCEPTION 'job % keeps another step at this name or place', p_job USING ERRCODE = 'QF007';
  END IF;
  RETURN ROW(p_job, p_generation, 'accepted', NULL, NULL, NULL, NULL)::fencerow.answer;
END
$body$;
