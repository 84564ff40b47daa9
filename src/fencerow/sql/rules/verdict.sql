-- verdict: why a fenced write was not let in, in the order of I4; asked only for tickets that hold() did not return.
-- Any refusal is kept as a row; 'already' (the same write by the same lease, repeated) counts as accepted.
CREATE OR REPLACE FUNCTION fencerow.verdict(
  p_lease bigint, p_job bigint, p_generation bigint, p_op text, p_kind text, p_result jsonb, p_error text
) RETURNS fencerow.answer
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v fencerow.answer;
BEGIN
  v.job_id := p_job;
  v.generation := p_generation;
  SELECT x.generation, x.state, x.lease_until, x.worker INTO v.current, v.state, v.lease_until, v.owner
  FROM fencerow.jobs AS x WHERE x.id = p_job;

  v.verdict := CASE
    WHEN NOT FOUND THEN 'unknown'
    WHEN EXISTS (
      SELECT FROM fencerow.ended AS e
      WHERE e.job_id = p_job AND e.generation = p_generation AND e.lease_id = p_lease
        AND p_kind = 'done' AND e.outcome = 'done' AND e.result IS NOT DISTINCT FROM p_result
    ) OR EXISTS (
      SELECT FROM fencerow.attempt AS a
      WHERE a.job_id = p_job AND a.generation = p_generation AND a.lease_id = p_lease
        AND a.kind = p_kind AND a.error IS NOT DISTINCT FROM p_error
    ) THEN 'already'
    WHEN v.current > p_generation THEN 'superseded'
    WHEN v.state = 'cancelled' THEN 'cancelled'
    WHEN v.state IN ('done', 'failed') THEN 'settled'
    ELSE 'expired'
  END;

  IF v.verdict <> 'already' THEN
    PERFORM fencerow.refuse(p_lease, p_job, p_generation, p_op, v.verdict, v.current);
  END IF;
  RETURN v;
END
$body$;
