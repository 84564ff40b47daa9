-- answers: one answer per input, in the order of the inputs: accepted where hold() returned a ticket, else its verdict.
-- Called after the move, so that a write repeated inside one batch is answered 'already'.
CREATE OR REPLACE FUNCTION fencerow.answers(
  p_op text, p_lease bigint, p_jobs bigint[], p_generations bigint[], p_tids tid[],
  p_kinds text[], p_results jsonb[], p_errors text[]
) RETURNS SETOF fencerow.answer
LANGUAGE plpgsql VOLATILE
AS $body$
BEGIN
  IF cardinality(p_results) <> cardinality(p_jobs) THEN
    RAISE EXCEPTION 'jobs and results differ in length' USING ERRCODE = 'QF002';
  END IF;
  IF array_position(p_tids, NULL) IS NULL THEN
    RETURN QUERY
      SELECT u.job_id, u.generation, 'accepted', NULL::integer, NULL::text, NULL::timestamptz, NULL::text
      FROM unnest(p_jobs, p_generations) AS u(job_id, generation);
    RETURN;
  END IF;
  FOR i IN 1 .. cardinality(p_jobs) LOOP
    IF p_tids[i] IS NULL THEN
      RETURN NEXT fencerow.verdict(
        p_lease, p_jobs[i], p_generations[i], p_op, p_kinds[i], p_results[i], p_errors[i]);
    ELSE
      RETURN NEXT ROW(p_jobs[i], p_generations[i], 'accepted', NULL, NULL, NULL, NULL)::fencerow.answer;
    END IF;
  END LOOP;
END
$body$;
