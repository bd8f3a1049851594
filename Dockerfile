# The planner as an image: the wheel, built in one stage and installed into an environment of its own in the other.
#   docker build -t planner . && docker run --rm planner suggest --help

FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY costmodel costmodel
COPY db db
COPY planner planner
COPY api api
# The environment is made where it will live: its scripts hold that path.
RUN python -m venv /opt/planner \
 && /opt/planner/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM python:3.11-slim
RUN useradd --system --create-home --uid 10001 planner
COPY --from=build /opt/planner /opt/planner
# PYTHONSAFEPATH: a folder called db or api where the container is started must not shadow our packages.
ENV PATH=/opt/planner/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
USER planner
WORKDIR /home/planner
ENTRYPOINT ["planner"]
