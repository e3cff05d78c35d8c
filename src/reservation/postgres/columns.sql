
    shard text PRIMARY KEY,
    mark bigint NOT NULL DEFAULT 0 CHECK (mark >= 0),
    holder text NOT NULL DEFAULT '',
    incarnation text NOT NULL DEFAULT '',
    expires timestamptz NOT NULL DEFAULT '-infinity'
