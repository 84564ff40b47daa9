-- The alternative of experiment E1: one table updated in place, ready and expired on two claim paths, the same fence.
DROP SCHEMA IF EXISTS one CASCADE;
CREATE SCHEMA one;
CREATE TABLE one.job (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text COLLATE "C" NOT NULL, priority smallint NOT NULL DEFAULT 100,
  state text NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'running', 'done')), generation integer NOT NULL DEFAULT 0,
  attempt smallint NOT NULL DEFAULT 0, lease_id bigint, lease_until timestamptz, ended_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(), task text NOT NULL, payload jsonb NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX job_ready ON one.job (queue, priority, id) WHERE state = 'ready';
CREATE INDEX job_running ON one.job (lease_until, id) WHERE state = 'running';
CREATE FUNCTION one.claim(p_lease bigint, p_queue text, p_limit integer)
RETURNS TABLE (job_id bigint, generation integer, task text, payload text)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $body$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH candidate AS MATERIALIZED (
    SELECT j.id FROM one.job AS j WHERE j.queue = p_queue AND j.state = 'ready'
    ORDER BY j.priority, j.id LIMIT p_limit FOR UPDATE OF j SKIP LOCKED
  )
  UPDATE one.job AS j SET state = 'running', generation = j.generation + 1, attempt = j.attempt + 1, lease_id = p_lease,
    lease_until = clock_timestamp() + interval '30 s'
  FROM candidate AS c WHERE j.id = c.id RETURNING j.id, j.generation, j.task, j.payload::text;
END $body$;
CREATE FUNCTION one.complete(p_lease bigint, p_jobs bigint[], p_generations integer[]) RETURNS SETOF bigint
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $body$
BEGIN
  PERFORM FROM one.job AS j WHERE j.id = ANY (p_jobs) ORDER BY j.id FOR UPDATE;
  RETURN QUERY
  UPDATE one.job AS j SET state = 'done', ended_at = clock_timestamp()
  FROM unnest(p_jobs, p_generations) AS u(id, generation)
  WHERE j.id = u.id AND j.generation = u.generation AND j.state = 'running' AND j.lease_id = p_lease
    AND j.lease_until > clock_timestamp() RETURNING j.id;
END $body$;
