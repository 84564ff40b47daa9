-- The tables. The state of a job is where its ticket is: ready, scheduled, running, or no more (ended).
-- Text with CHECK instead of enums, no triggers, no foreign keys on hot tables (they would lock rows that claims must not touch).

CREATE TABLE fencerow.space (
  only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  id         uuid NOT NULL DEFAULT gen_random_uuid(),
  contract   integer NOT NULL,
  oldest     integer NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE fencerow.space IS 'One row: the identity of this space; contract = function set installed, oldest = oldest client it still serves.';

CREATE SEQUENCE fencerow.job_id AS bigint;
CREATE SEQUENCE fencerow.fence AS bigint CACHE 1;

CREATE TABLE fencerow.task (
  name         text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200 AND name !~ '[[:cntrl:]]'),
  queue        text COLLATE "C" CHECK (length(queue) BETWEEN 1 AND 63 AND queue !~ '[[:cntrl:]]'),
  priority     smallint,
  max_attempts smallint NOT NULL DEFAULT 20 CHECK (max_attempts BETWEEN 1 AND 1000),
  on_lost      text NOT NULL DEFAULT 'retry' CHECK (on_lost IN ('retry', 'fail')),
  backoff_base interval NOT NULL DEFAULT '2 s' CHECK (backoff_base BETWEEN '0.001 s' AND '1 day'),
  backoff_cap  interval NOT NULL DEFAULT '1 h' CHECK (backoff_cap BETWEEN '0.001 s' AND '30 days'),
  timeout      interval DEFAULT '1 h' CHECK (timeout > '0 s' AND timeout <= '365 days'),
  keep         interval NOT NULL DEFAULT '7 days' CHECK (keep BETWEEN '0 s' AND '3650 days'),
  keep_failed  interval NOT NULL DEFAULT '30 days' CHECK (keep_failed BETWEEN '0 s' AND '3650 days'),
  updated_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE fencerow.task IS 'Policy of each task, written by workers at start, so that expiry and jobs enqueued from psql know it. timeout NULL = none.';

CREATE TABLE fencerow.job (
  id              bigint PRIMARY KEY,
  created_at      timestamptz NOT NULL,
  run_at          timestamptz CHECK (run_at >= '1970-01-01+00' AND run_at < '9000-01-01+00'),
  priority        smallint NOT NULL,
  max_attempts    smallint CHECK (max_attempts BETWEEN 1 AND 1000),
  queue           text COLLATE "C" NOT NULL CHECK (length(queue) BETWEEN 1 AND 63 AND queue !~ '[[:cntrl:]]'),
  task            text COLLATE "C" NOT NULL CHECK (length(task) BETWEEN 1 AND 200 AND task !~ '[[:cntrl:]]'),
  payload         jsonb NOT NULL CHECK (jsonb_typeof(payload) = 'object' AND pg_column_size(payload) <= 2097152),
  timeout         interval CHECK (timeout > '0 s' AND timeout <= '365 days'),
  on_lost         text CHECK (on_lost IN ('retry', 'fail')),
  tags            text[] CHECK (cardinality(tags) <= 20),
  headers         jsonb CHECK (jsonb_typeof(headers) = 'object' AND pg_column_size(headers) <= 65536),
  idempotency_key text COLLATE "C" CHECK (length(idempotency_key) BETWEEN 1 AND 200),
  unique_key      text COLLATE "C" CHECK (length(unique_key) BETWEEN 1 AND 200),
  unique_until    text CHECK (unique_until IN ('finished', 'started', 'time')),
  parent_id       bigint
);
COMMENT ON TABLE fencerow.job IS 'What was asked: written once. NULL in max_attempts, timeout, on_lost means: as its task says. parent_id: the job whose handler enqueued it.';

CREATE TABLE fencerow.ready (
  since      timestamptz NOT NULL,
  job_id     bigint NOT NULL,
  generation integer NOT NULL,
  priority   smallint NOT NULL,
  attempt    smallint NOT NULL,
  suspect    boolean NOT NULL DEFAULT false,
  queue      text COLLATE "C" NOT NULL,
  key_until  text,
  PRIMARY KEY (queue, suspect, priority, job_id)
);
COMMENT ON TABLE fencerow.ready IS 'Tickets that may be claimed. suspect = lost in company: claimed alone only. key_until = when its unique key is freed (finished, started), NULL: never by the ticket.';

CREATE TABLE fencerow.scheduled (
  run_at     timestamptz NOT NULL CHECK (run_at < '9000-01-01+00'),
  job_id     bigint NOT NULL PRIMARY KEY,
  generation integer NOT NULL,
  priority   smallint NOT NULL,
  attempt    smallint NOT NULL,
  suspect    boolean NOT NULL DEFAULT false,
  queue      text COLLATE "C" NOT NULL,
  key_until  text
);
CREATE INDEX scheduled_run_at ON fencerow.scheduled (run_at, job_id);
COMMENT ON TABLE fencerow.scheduled IS 'Tickets whose time is ahead: run_at given by the producer, a retry''s back-off or a snooze.';

CREATE TABLE fencerow.lease (
  id     bigint PRIMARY KEY,
  until  timestamptz NOT NULL,
  length interval NOT NULL CHECK (length BETWEEN '1 s' AND '1 day'),
  alone  boolean NOT NULL DEFAULT false,
  worker text COLLATE "C" NOT NULL CHECK (length(worker) BETWEEN 1 AND 200)
) WITH (fillfactor = 50);
COMMENT ON TABLE fencerow.lease IS 'Who holds, until when (database clock). One row per worker process; id is random: the proof of ownership. until is not indexed, so that a renewal stays HOT.';

CREATE TABLE fencerow.past_lease (
  id       bigint PRIMARY KEY,
  worker   text COLLATE "C" NOT NULL,
  ended_at timestamptz NOT NULL
);
COMMENT ON TABLE fencerow.past_lease IS 'Leases that ended, so that a late write can still be answered with the name of its worker.';

CREATE TABLE fencerow.running (
  lease_id         bigint NOT NULL,
  job_id           bigint NOT NULL,
  claimed_at       timestamptz NOT NULL,
  generation       integer NOT NULL,
  attempt          smallint NOT NULL,
  cancel_requested boolean NOT NULL DEFAULT false,
  suspect          boolean NOT NULL DEFAULT false,
  key_until        text,
  progress         real CHECK (progress BETWEEN 0 AND 1),
  note             text CHECK (length(note) <= 500),
  PRIMARY KEY (lease_id, job_id)
);
CREATE INDEX running_cancel ON fencerow.running (lease_id) WHERE cancel_requested;
COMMENT ON TABLE fencerow.running IS 'Tickets under a lease. No ticket here without its lease row: found by (lease, job, generation), or through the few leases.';

CREATE TABLE fencerow.ended (
  job_id           bigint PRIMARY KEY,
  lease_id         bigint,
  claimed_at       timestamptz,
  ended_at         timestamptz NOT NULL,
  generation       integer NOT NULL,
  attempt          smallint NOT NULL,
  cancel_requested boolean NOT NULL DEFAULT false,
  outcome          text NOT NULL CHECK (outcome IN ('done', 'failed', 'cancelled')),
  result           jsonb CHECK (pg_column_size(result) <= 524288),
  error            text CHECK (length(error) <= 8192)
);
CREATE INDEX ended_unsuccessful ON fencerow.ended (outcome, job_id) WHERE outcome <> 'done';
COMMENT ON TABLE fencerow.ended IS 'One row per ended job: the primary key is the promise that a job ends once.';

CREATE TABLE fencerow.attempt (
  job_id     bigint NOT NULL,
  generation integer NOT NULL,
  attempt    smallint NOT NULL,
  lease_id   bigint NOT NULL,
  claimed_at timestamptz NOT NULL,
  ended_at   timestamptz NOT NULL,
  kind       text NOT NULL CHECK (kind IN ('failed', 'invalid', 'unavailable', 'timeout', 'lost', 'released', 'snoozed', 'cancelled')),
  error      text CHECK (length(error) <= 8192),
  PRIMARY KEY (job_id, generation)
);
COMMENT ON TABLE fencerow.attempt IS 'One row per attempt that did not complete; its primary key lets one settlement in per job and generation.';

CREATE TABLE fencerow.step (
  job_id     bigint NOT NULL,
  name       text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  place      smallint NOT NULL CHECK (place BETWEEN 1 AND 1000),
  generation integer NOT NULL,
  kept_at    timestamptz NOT NULL,
  code       text NOT NULL CHECK (length(code) BETWEEN 1 AND 500),
  result     text NOT NULL CHECK (octet_length(result) <= 65536),
  PRIMARY KEY (job_id, name),
  UNIQUE (job_id, place)
);
COMMENT ON TABLE fencerow.step IS 'Results that handlers keep across attempts, as the JSON text that was given: a body made from one is the same, byte by byte, in every attempt.';

CREATE TABLE fencerow.refusal (
  id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_id             bigint NOT NULL,
  generation         bigint NOT NULL,
  lease_id           bigint NOT NULL,
  worker             text,
  op                 text NOT NULL,
  verdict            text NOT NULL,
  current_generation integer,
  at                 timestamptz NOT NULL
);
CREATE INDEX refusal_job ON fencerow.refusal (job_id);
COMMENT ON TABLE fencerow.refusal IS 'Writes that were refused: who came too late, with what, and why.';

CREATE TABLE fencerow.unique_key (
  key    text COLLATE "C" PRIMARY KEY,
  job_id bigint NOT NULL,
  until  timestamptz
);
COMMENT ON TABLE fencerow.unique_key IS 'A key declared unique and the job that holds it. until NULL: freed with its job; else held until that time. Changed only by whoever holds the job''s ticket, or when its time is over.';

CREATE TABLE fencerow.idempotency_key (
  key    text COLLATE "C" PRIMARY KEY,
  job_id bigint NOT NULL
);
COMMENT ON TABLE fencerow.idempotency_key IS 'Key of an enqueue that may be sent again after an uncertain commit; lives as long as its job.';

CREATE TABLE fencerow.queue (
  name      text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63 AND name !~ '[[:cntrl:]]'),
  paused_at timestamptz,
  paused_by text
);
COMMENT ON TABLE fencerow.queue IS 'Settings of a queue. A queue without a row is an ordinary one.';

CREATE TABLE fencerow.worker (
  name       text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
  host       text NOT NULL,
  pid        integer NOT NULL,
  version    text NOT NULL,
  queues     text[] NOT NULL,
  tasks      text[] NOT NULL,
  slots      integer NOT NULL,
  started_at timestamptz NOT NULL,
  stopped_at timestamptz
);
COMMENT ON TABLE fencerow.worker IS 'One row per worker process start. It decides nothing: whether a worker lives is told by its lease.';

CREATE UNLOGGED TABLE fencerow.asleep (
  queue    text COLLATE "C" NOT NULL,
  lease_id bigint NOT NULL,
  since    timestamptz NOT NULL,
  PRIMARY KEY (queue, lease_id)
);
COMMENT ON TABLE fencerow.asleep IS 'Workers that wait for a NOTIFY. A hint: losing it in a crash costs one poll interval.';

CREATE TABLE fencerow.intervention (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     timestamptz NOT NULL,
  verb   text NOT NULL CHECK (verb IN ('cancel', 'redrive', 'pause', 'resume')),
  job_id bigint,
  queue  text,
  by     text NOT NULL,
  note   text CHECK (length(note) <= 500)
);
CREATE INDEX intervention_job ON fencerow.intervention (job_id) WHERE job_id IS NOT NULL;
COMMENT ON TABLE fencerow.intervention IS 'What people did: who cancelled, redrove, paused, and when.';

CREATE TYPE fencerow.answer AS (
  job_id      bigint,
  generation  bigint,
  verdict     text,
  current     integer,
  state       text,
  lease_until timestamptz,
  owner       text
);
COMMENT ON TYPE fencerow.answer IS 'What the database says to a fenced write. current, state, lease_until, owner describe the job as it is now; NULL when accepted.';

CREATE TYPE fencerow.grip AS (
  tids  tid[],
  at    timestamptz,
  until timestamptz
);
COMMENT ON TYPE fencerow.grip IS 'What hold() locked: tids[i] is the ticket of input i, NULL where the claim is not held; at = the clock read after the locks.';
