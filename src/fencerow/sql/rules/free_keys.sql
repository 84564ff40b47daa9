-- free_keys: give back the unique keys of jobs that started or ended; keys held for a time stay. The caller holds the
-- jobs' tickets, and rows are locked in key order, so two callers cannot deadlock.
CREATE OR REPLACE FUNCTION fencerow.free_keys(p_jobs bigint[]) RETURNS void
LANGUAGE sql VOLATILE
AS $body$
  DELETE FROM fencerow.unique_key AS u
  USING (
    SELECT k.ctid AS tid
    FROM unnest(p_jobs) AS given(job_id)
    JOIN fencerow.job AS j ON j.id = given.job_id
    JOIN fencerow.unique_key AS k ON k.key = j.unique_key AND k.job_id = j.id
    WHERE k.until IS NULL
    ORDER BY k.key
    FOR UPDATE OF k
  ) AS mine
  WHERE u.ctid = mine.tid
$body$;
