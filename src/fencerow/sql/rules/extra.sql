-- extra: the rarely given fields of a job that its handler can read, NULL when none was given, so that a plain job pays
-- nothing for them on its way to the worker.
CREATE OR REPLACE FUNCTION fencerow.extra(p_job fencerow.job) RETURNS jsonb
LANGUAGE sql STABLE
AS $body$
  SELECT CASE
    WHEN p_job.max_attempts IS NULL AND p_job.timeout IS NULL AND p_job.on_lost IS NULL AND p_job.tags IS NULL
         AND p_job.headers IS NULL AND p_job.idempotency_key IS NULL THEN NULL
    ELSE jsonb_strip_nulls(jsonb_build_object(
      'max_attempts', p_job.max_attempts, 'timeout', extract(epoch FROM p_job.timeout), 'on_lost', p_job.on_lost,
      'tags', p_job.tags, 'idempotency_key', p_job.idempotency_key)) || jsonb_build_object('headers', p_job.headers)
  END
$body$;
