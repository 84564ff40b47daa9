-- forget: what no job's retention covers: past leases and workers that ended 30 days ago, refusals of jobs that are gone and
-- audit rows after a year. Bounded, and passes over what is locked; a late write after that is answered without a name.
CREATE OR REPLACE FUNCTION fencerow.forget(p_at timestamptz, p_limit integer) RETURNS void
LANGUAGE sql VOLATILE
AS $body$
  DELETE FROM fencerow.past_lease AS p WHERE p.id IN (
    SELECT x.id FROM fencerow.past_lease AS x WHERE x.ended_at <= p_at - interval '30 days'
    LIMIT p_limit FOR UPDATE OF x SKIP LOCKED);
  DELETE FROM fencerow.worker AS w WHERE w.name IN (
    SELECT x.name FROM fencerow.worker AS x
    WHERE x.started_at <= p_at - interval '30 days'
      AND NOT EXISTS (SELECT FROM fencerow.lease AS l WHERE l.worker = x.name)
    LIMIT p_limit FOR UPDATE OF x SKIP LOCKED);
  DELETE FROM fencerow.refusal AS f WHERE f.id IN (
    SELECT x.id FROM fencerow.refusal AS x
    WHERE x.at <= p_at - interval '365 days' AND NOT EXISTS (SELECT FROM fencerow.job AS j WHERE j.id = x.job_id)
    LIMIT p_limit FOR UPDATE OF x SKIP LOCKED);
  DELETE FROM fencerow.intervention AS i WHERE i.id IN (
    SELECT x.id FROM fencerow.intervention AS x
    WHERE x.at <= p_at - interval '365 days'
      AND (x.job_id IS NULL OR NOT EXISTS (SELECT FROM fencerow.job AS j WHERE j.id = x.job_id))
    LIMIT p_limit FOR UPDATE OF x SKIP LOCKED);
$body$;
