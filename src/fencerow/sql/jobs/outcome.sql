-- outcome: reads what became of a settlement whose COMMIT was not answered
-- fence:   none: it changes nothing
-- locks:   the ticket FOR SHARE, so that it waits for the undecided transaction instead of guessing
-- params:  p_lease, p_job, p_generation
-- returns: 'accepted' when this lease ended this generation, 'open' when the ticket is still under the lease, else 'lost'
-- plan:    running_pkey, ended_pkey, attempt_pkey, one probe each
CREATE OR REPLACE FUNCTION fencerow.outcome(p_lease bigint, p_job bigint, p_generation bigint) RETURNS text
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
BEGIN
  PERFORM fencerow.require_read_committed();
  PERFORM FROM fencerow.running AS r
  WHERE r.lease_id = p_lease AND r.job_id = p_job AND r.generation = p_generation FOR SHARE;
  IF FOUND THEN
    RETURN 'open';
  END IF;
  IF EXISTS (
    SELECT FROM fencerow.ended AS e WHERE e.job_id = p_job AND e.generation = p_generation AND e.lease_id = p_lease
  ) THEN
    RETURN 'accepted';
  END IF;
  RETURN 'lost';
END
$body$;
