-- expire: running -> ready | scheduled | failed by the rule for losses | cancelled when that was asked
-- fence:   none: it acts for nobody; only leases whose end has passed on the database clock
-- locks:   lease rows FOR UPDATE SKIP LOCKED (a renewal or claim under way keeps its lease), then their tickets FOR UPDATE
--          SKIP LOCKED (a settlement or job.commit() under way keeps its ticket); waits for nothing
-- params:  p_limit tickets at most
-- returns: what became of each lost job; leases that own nothing more are moved to past_lease, and a lease further ahead
--          of the clock than its own length (the clock went back) is cut to that length
-- plan:    lease_pkey (one row per process), then running_pkey by lease; nothing depends on backlog or history
CREATE OR REPLACE FUNCTION fencerow.expire(p_limit integer DEFAULT 1000)
RETURNS TABLE (job_id bigint, generation integer, fate text)
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
  v_at timestamptz := fencerow.now();
  v_over bigint[];
  v_tids tid[];
  v_tid tid;
  v_error text := 'the lease of its worker ended before the job was settled';
BEGIN
  PERFORM fencerow.require_read_committed();
  -- The clock is read again for each row: against v_at a lease renewed since then would look too long and lose time.
  UPDATE fencerow.lease AS l SET until = fencerow.now() + l.length
  WHERE l.until > fencerow.now() + l.length AND l.id IN (
    SELECT x.id FROM fencerow.lease AS x WHERE x.until > fencerow.now() + x.length FOR NO KEY UPDATE OF x SKIP LOCKED);

  SELECT array_agg(x.id) INTO v_over
  FROM (SELECT l.id FROM fencerow.lease AS l WHERE l.until <= v_at ORDER BY l.id FOR UPDATE OF l SKIP LOCKED) AS x;
  IF v_over IS NULL THEN
    RETURN;
  END IF;
  SELECT array_agg(x.tid) INTO v_tids
  FROM (
    SELECT r.ctid AS tid
    FROM unnest(v_over) AS over(lease_id)
    JOIN fencerow.running AS r ON r.lease_id = over.lease_id
    ORDER BY r.lease_id, r.job_id
    LIMIT p_limit
    FOR UPDATE OF r SKIP LOCKED
  ) AS x;

  IF v_tids IS NOT NULL THEN
    BEGIN
      RETURN QUERY SELECT e.job_id, e.generation, e.fate FROM fencerow.end_attempts(
        v_tids, v_at, array_fill('lost'::text, ARRAY[cardinality(v_tids)]),
        array_fill(v_error, ARRAY[cardinality(v_tids)]), NULL, false) AS e;
    EXCEPTION WHEN integrity_constraint_violation THEN
      FOREACH v_tid IN ARRAY v_tids LOOP
        BEGIN
          RETURN QUERY SELECT e.job_id, e.generation, e.fate FROM fencerow.end_attempts(
            ARRAY[v_tid], v_at, ARRAY['lost'], ARRAY[v_error], NULL, false) AS e;
        EXCEPTION WHEN integrity_constraint_violation THEN
          RAISE WARNING 'a lost ticket cannot be moved: %', SQLERRM;
        END;
      END LOOP;
    END;
  END IF;

  WITH gone AS (
    DELETE FROM fencerow.lease AS l
    WHERE l.id = ANY (v_over) AND NOT EXISTS (SELECT FROM fencerow.running AS r WHERE r.lease_id = l.id)
    RETURNING l.id, l.worker
  ), quiet AS (
    DELETE FROM fencerow.asleep AS a USING gone AS g WHERE a.lease_id = g.id
  )
  INSERT INTO fencerow.past_lease (id, worker, ended_at) SELECT g.id, g.worker, v_at FROM gone AS g
  ON CONFLICT (id) DO NOTHING;
END
$body$;
