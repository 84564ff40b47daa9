-- enqueue: nothing -> ready | scheduled (when its time is ahead)
-- fence:   none; with an idempotency key the same call again answers the same job
-- locks:   as enqueue_many, whose form for one job this is
-- params:  task and payload (a JSON object: the arguments by name); everything else as enqueue_many, by name
-- returns: the job id
-- plan:    as enqueue_many
CREATE OR REPLACE FUNCTION fencerow.enqueue(
  task text, payload jsonb DEFAULT '{}', queue text DEFAULT NULL, priority integer DEFAULT NULL,
  run_at timestamptz DEFAULT NULL, run_in interval DEFAULT NULL, max_attempts integer DEFAULT NULL,
  timeout interval DEFAULT NULL, on_lost text DEFAULT NULL, tags text[] DEFAULT NULL, headers jsonb DEFAULT NULL,
  idempotency_key text DEFAULT NULL, unique_key text DEFAULT NULL, unique_until text DEFAULT NULL,
  unique_for interval DEFAULT NULL, on_conflict text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT e.id FROM fencerow.enqueue_many(
    ARRAY[task], ARRAY[payload], ARRAY[queue], ARRAY[priority], ARRAY[run_at], ARRAY[run_in], ARRAY[max_attempts],
    ARRAY[timeout], ARRAY[on_lost], ARRAY[to_jsonb(tags)], ARRAY[headers],
    CASE WHEN idempotency_key IS NOT NULL THEN ARRAY[idempotency_key] END,
    CASE WHEN unique_key IS NOT NULL THEN ARRAY[unique_key] END, ARRAY[unique_until], ARRAY[unique_for],
    ARRAY[on_conflict]) AS e
$body$;
