-- job_facts: one job whole, as JSON, never the payload unless asked: the row of the jobs view, its attempts, refusals and
-- interventions, and what it may be waiting for (pause, live workers that serve its queue and know its task).
CREATE OR REPLACE FUNCTION fencerow.job_facts(p_job bigint, p_payload boolean DEFAULT false) RETURNS jsonb
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT to_jsonb(x) || jsonb_build_object(
    'now', fencerow.now(),
    'payload', CASE WHEN p_payload THEN j.payload END,
    'result', (SELECT e.result FROM fencerow.ended AS e WHERE e.job_id = x.id),
    'headers', j.headers,
    'paused_at', (SELECT q.paused_at FROM fencerow.queue AS q WHERE q.name = x.queue),
    'paused_by', (SELECT q.paused_by FROM fencerow.queue AS q WHERE q.name = x.queue),
    'queue_workers', (SELECT count(*) FROM fencerow.live_workers() AS w WHERE x.queue = ANY (w.queues)),
    'task_workers', (SELECT count(*) FROM fencerow.live_workers() AS w WHERE x.queue = ANY (w.queues) AND x.task = ANY (w.tasks)),
    'attempts', (SELECT coalesce(jsonb_agg(to_jsonb(a) || jsonb_build_object('worker', fencerow.lease_worker(a.lease_id))
                                           ORDER BY a.generation), '[]')
                 FROM fencerow.attempt AS a WHERE a.job_id = x.id),
    'refusals', (SELECT coalesce(jsonb_agg(to_jsonb(f) ORDER BY f.id), '[]') FROM fencerow.refusal AS f WHERE f.job_id = x.id),
    'interventions', (SELECT coalesce(jsonb_agg(to_jsonb(i) ORDER BY i.id), '[]')
                      FROM fencerow.intervention AS i WHERE i.job_id = x.id))
  FROM fencerow.jobs AS x JOIN fencerow.job AS j ON j.id = x.id
  WHERE x.id = p_job
$body$;
