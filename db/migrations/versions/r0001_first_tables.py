"""The first tables: catalog entries, scenarios, searches, plans, studies, measurements, keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LIVE = sa.text("state IN ('queued', 'running')")


def upgrade() -> None:
    """Create them. Literal on purpose: what the tables become later must not change what they were at first."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("name", name="uq_api_keys_name"),
        sa.UniqueConstraint("secret_sha256", name="uq_api_keys_secret_sha256"),
    )
    op.create_table(
        "calibrations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("retrieved", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
    )
    op.create_index("ix_calibrations_name", "calibrations", ["name"], unique=False)
    op.create_table(
        "clusters",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("accelerator", sa.Text(), nullable=False),
        sa.Column("devices_per_node", sa.Integer(), nullable=False),
        sa.Column("max_devices", sa.BigInteger(), nullable=True),
        sa.Column("price_per_device_hour", sa.Double(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_clusters"),
    )
    op.create_index("ix_clusters_accelerator", "clusters", ["accelerator"], unique=False)
    op.create_index("ix_clusters_name", "clusters", ["name"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("principal", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "models",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("params_total", sa.BigInteger(), nullable=False),
        sa.Column("params_active", sa.BigInteger(), nullable=False),
        sa.Column("num_layers", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_models"),
    )
    op.create_index("ix_models_name", "models", ["name"], unique=False)
    op.create_table(
        "scenarios",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("model_id", sa.String(length=32), nullable=False),
        sa.Column("cluster_id", sa.String(length=32), nullable=False),
        sa.Column("devices", sa.BigInteger(), nullable=False),
        sa.Column("global_batch_size", sa.BigInteger(), nullable=False),
        sa.Column("seq_len", sa.BigInteger(), nullable=False),
        sa.Column("precision", sa.Text(), nullable=False),
        sa.Column("optimizer", sa.Text(), nullable=False),
        sa.Column("framework", sa.Text(), nullable=False),
        sa.Column("framework_version", sa.Text(), nullable=False),
        sa.Column("min_free_bytes", sa.BigInteger(), nullable=True),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], name="fk_scenarios_cluster_id_clusters"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name="fk_scenarios_model_id_models"),
        sa.PrimaryKeyConstraint("id", name="pk_scenarios"),
    )
    op.create_index("ix_scenarios_cluster_id", "scenarios", ["cluster_id"], unique=False)
    op.create_index("ix_scenarios_model_id", "scenarios", ["model_id"], unique=False)
    op.create_table(
        "plans",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("scenario_id", sa.String(length=32), nullable=False),
        sa.Column("calibration_id", sa.String(length=32), nullable=False),
        sa.Column("cost_model_version", sa.Text(), nullable=False),
        sa.Column("tp", sa.Integer(), nullable=False),
        sa.Column("pp", sa.Integer(), nullable=False),
        sa.Column("vpp", sa.Integer(), nullable=False),
        sa.Column("cp", sa.Integer(), nullable=False),
        sa.Column("cp_comm_type", sa.Text(), nullable=False),
        sa.Column("ep", sa.Integer(), nullable=False),
        sa.Column("etp", sa.Integer(), nullable=False),
        sa.Column("dp", sa.Integer(), nullable=False),
        sa.Column("dp_replicate", sa.Integer(), nullable=False),
        sa.Column("dp_shard", sa.Integer(), nullable=False),
        sa.Column("zero_stage", sa.Integer(), nullable=False),
        sa.Column("micro_batch_size", sa.Integer(), nullable=False),
        sa.Column("num_microbatches", sa.Integer(), nullable=False),
        sa.Column("devices_used", sa.Integer(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("recompute", sa.Text(), nullable=False),
        sa.Column("offload", sa.Text(), nullable=False),
        sa.Column("step_time_s", sa.Double(), nullable=False),
        sa.Column("tokens_per_s_per_device", sa.Double(), nullable=False),
        sa.Column("mfu", sa.Double(), nullable=False),
        sa.Column("peak_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["calibration_id"], ["calibrations.id"], name="fk_plans_calibration_id_calibrations"),
        sa.ForeignKeyConstraint(["scenario_id"], ["scenarios.id"], name="fk_plans_scenario_id_scenarios"),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_created_at_id", "plans", ["created_at", "id"], unique=False)
    op.create_index("ix_plans_mfu_id", "plans", ["mfu", "id"], unique=False)
    op.create_index("ix_plans_peak_bytes_id", "plans", ["peak_bytes", "id"], unique=False)
    op.create_index("ix_plans_scenario_id_step_time_s", "plans", ["scenario_id", "step_time_s", "id"], unique=False)
    op.create_index("ix_plans_step_time_s_id", "plans", ["step_time_s", "id"], unique=False)
    op.create_index("ix_plans_tokens_per_s_per_device_id", "plans", ["tokens_per_s_per_device", "id"], unique=False)
    op.create_table(
        "searches",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("problem_key", sa.String(length=32), nullable=False),
        sa.Column("scenario_id", sa.String(length=32), nullable=False),
        sa.Column("calibration_id", sa.String(length=32), nullable=False),
        sa.Column("cost_model_version", sa.Text(), nullable=False),
        sa.Column("search_version", sa.Text(), nullable=False),
        sa.Column("question", sa.JSON(), nullable=False),
        sa.Column("objective", sa.Text(), nullable=False),
        sa.Column("top", sa.Integer(), nullable=False),
        sa.Column("max_seconds", sa.Double(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("best", sa.Double(), nullable=True),
        sa.Column("bound", sa.Double(), nullable=True),
        sa.Column("gap", sa.Double(), nullable=True),
        sa.Column("proven_top_k", sa.Boolean(), nullable=True),
        sa.Column("plans_within", sa.Integer(), nullable=True),
        sa.Column("elapsed_s", sa.Double(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=True),
        sa.Column("problem", sa.JSON(), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name=op.f("ck_searches_state")
        ),
        sa.ForeignKeyConstraint(
            ["calibration_id"], ["calibrations.id"], name="fk_searches_calibration_id_calibrations"
        ),
        sa.ForeignKeyConstraint(["scenario_id"], ["scenarios.id"], name="fk_searches_scenario_id_scenarios"),
        sa.PrimaryKeyConstraint("id", name="pk_searches"),
    )
    op.create_index("ix_searches_calibration_id", "searches", ["calibration_id"], unique=False)
    op.create_index("ix_searches_created_at_id", "searches", ["created_at", "id"], unique=False)
    op.create_index("ix_searches_key_state", "searches", ["key", "state"], unique=False)
    op.create_index("ix_searches_problem_key", "searches", ["problem_key"], unique=False)
    op.create_index("ix_searches_scenario_id", "searches", ["scenario_id"], unique=False)
    op.create_index(
        "ix_searches_waiting", "searches", ["created_at"], unique=False, sqlite_where=LIVE, postgresql_where=LIVE
    )
    op.create_index(
        "uq_searches_alive",
        "searches",
        ["key", "seed", "max_seconds"],
        unique=True,
        sqlite_where=LIVE,
        postgresql_where=LIVE,
    )
    op.create_table(
        "plan_documents",
        sa.Column("plan_id", sa.String(length=32), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_plan_documents_plan_id_plans", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("plan_id", name="pk_plan_documents"),
    )
    op.create_table(
        "predictions",
        sa.Column("plan_id", sa.String(length=32), nullable=False),
        sa.Column("step_time_low_s", sa.Double(), nullable=False),
        sa.Column("step_time_high_s", sa.Double(), nullable=False),
        sa.Column("hfu", sa.Double(), nullable=False),
        sa.Column("usable_bytes", sa.BigInteger(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("time", sa.JSON(), nullable=False),
        sa.Column("memory_stages", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_predictions_plan_id_plans", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("plan_id", name="pk_predictions"),
    )
    op.create_table(
        "search_plans",
        sa.Column("search_id", sa.String(length=32), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("plan_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_search_plans_plan_id_plans"),
        sa.ForeignKeyConstraint(
            ["search_id"], ["searches.id"], name="fk_search_plans_search_id_searches", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("search_id", "rank", name="pk_search_plans"),
    )
    op.create_index("ix_search_plans_plan_id", "search_plans", ["plan_id"], unique=False)
    op.create_table(
        "studies",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scenario_id", sa.String(length=32), nullable=False),
        sa.Column("search_id", sa.String(length=32), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["scenario_id"], ["scenarios.id"], name="fk_studies_scenario_id_scenarios"),
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name="fk_studies_search_id_searches"),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
        sa.UniqueConstraint("name", name="uq_studies_name"),
    )
    op.create_index("ix_studies_scenario_id", "studies", ["scenario_id"], unique=False)
    op.create_table(
        "measurements",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("plan_id", sa.String(length=32), nullable=False),
        sa.Column("study_id", sa.String(length=32), nullable=True),
        sa.Column("trial_number", sa.Integer(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("step_time_s", sa.Double(), nullable=True),
        sa.Column("tokens_per_s_per_device", sa.Double(), nullable=True),
        sa.Column("peak_allocated_bytes", sa.BigInteger(), nullable=True),
        sa.Column("peak_reserved_bytes", sa.BigInteger(), nullable=True),
        sa.Column("steps", sa.BigInteger(), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("status IN ('ok', 'out_of_memory', 'failed')", name=op.f("ck_measurements_status")),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_measurements_plan_id_plans"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_measurements_study_id_studies"),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.UniqueConstraint("study_id", "trial_number", name="uq_measurements_study_id_trial_number"),
    )
    op.create_index("ix_measurements_created_at_id", "measurements", ["created_at", "id"], unique=False)
    op.create_index("ix_measurements_job_id", "measurements", ["job_id"], unique=False)
    op.create_index("ix_measurements_plan_id", "measurements", ["plan_id"], unique=False)
