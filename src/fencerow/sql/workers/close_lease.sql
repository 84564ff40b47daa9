-- close_lease: give up a lease that holds nothing. False: it still holds tickets (they expire with it), or is gone.
CREATE OR REPLACE FUNCTION fencerow.close_lease(p_lease bigint) RETURNS boolean
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
  v_worker text;
BEGIN
  PERFORM fencerow.require_read_committed();
  DELETE FROM fencerow.asleep AS a WHERE a.lease_id = p_lease;
  PERFORM FROM fencerow.lease AS l WHERE l.id = p_lease FOR UPDATE;
  DELETE FROM fencerow.lease AS l
  WHERE l.id = p_lease AND NOT EXISTS (SELECT FROM fencerow.running AS r WHERE r.lease_id = p_lease)
  RETURNING l.worker INTO v_worker;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO fencerow.past_lease (id, worker, ended_at) VALUES (p_lease, v_worker, fencerow.now())
  ON CONFLICT (id) DO NOTHING;
  RETURN true;
END
$body$;
