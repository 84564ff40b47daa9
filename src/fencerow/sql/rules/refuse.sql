-- refuse: keep a refusal. Called by verdict(), and by a worker whose refusal was rolled back with the transaction that
-- met it (job.commit()): never a settlement, only the record of one that was refused.
CREATE OR REPLACE FUNCTION fencerow.refuse(
  p_lease bigint, p_job bigint, p_generation bigint, p_op text, p_verdict text, p_current integer
) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  INSERT INTO fencerow.refusal (job_id, generation, lease_id, worker, op, verdict, current_generation, at)
  SELECT p_job, p_generation, p_lease,
         coalesce((SELECT l.worker FROM fencerow.lease AS l WHERE l.id = p_lease),
                  (SELECT l.worker FROM fencerow.past_lease AS l WHERE l.id = p_lease)),
         left(p_op, 40), p_verdict, p_current, fencerow.now()
  WHERE p_verdict IN ('unknown', 'superseded', 'cancelled', 'settled', 'expired')
$body$;
