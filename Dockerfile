# The planner as an image. The wheel is built and installed in one stage; its environment alone moves into the other.
#   docker build -t planner . && docker run --rm planner suggest --help
# `make image-check` runs these same steps on a machine without a container engine.

# Python's minor version and Debian's release are fixed, so that a build of tomorrow differs by patches only.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY costmodel costmodel
COPY db db
COPY planner planner
COPY api api
# The environment is made where it will live: its scripts hold that path. It has no pip: nothing is installed later.
RUN python -m venv --without-pip /opt/planner \
 && python -m pip --python /opt/planner/bin/python install --no-cache-dir --disable-pip-version-check '.[postgres]'

FROM python:3.11-slim-bookworm
ARG VERSION=unreleased
LABEL org.opencontainers.image.title="Parallelism planner" \
      org.opencontainers.image.description="Ranked, feasible and proven parallelism plans for training large models" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.licenses="Apache-2.0"
# The number, not the name, says who runs: only so can Kubernetes tell that it isn't root.
RUN useradd --create-home --uid 10001 planner \
 && install --directory --owner 10001 --mode 0700 /data
COPY --from=build /opt/planner /opt/planner
# PYTHONSAFEPATH: a folder called db or api where the container is started must not shadow our packages.
ENV PATH=/opt/planner/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PLANNER_DATABASE_URL=sqlite:////data/planner.db
USER 10001
WORKDIR /home/planner
EXPOSE 8000
# No proxy, whatever the environment names one for.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ.get('PLANNER_PORT', '8000') + '/healthz', timeout=2).read()"]
ENTRYPOINT ["planner"]
# Not loopback, so it demands API keys, or refuses to start while there are none.
CMD ["serve", "--host", "0.0.0.0"]
