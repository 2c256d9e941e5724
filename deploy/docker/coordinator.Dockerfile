# The image of the coordinator and the command line. Build it from the repository's root:
#   docker build -f deploy/docker/coordinator.Dockerfile -t tessera/coordinator .
# PROGRAMS may also name an image that has the programs staged at /stage/opt/tessera.
ARG PROGRAMS=build

FROM debian:12 AS build
WORKDIR /src
COPY scripts/setup scripts/packages.txt scripts/
RUN scripts/setup && rm -rf /var/lib/apt/lists/*
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache \
    cmake --preset release && cmake --build --preset release --target image_programs
RUN scripts/stage deploy/images/coordinator.files build/release /stage/opt/tessera

FROM ${PROGRAMS} AS programs

FROM debian:12-slim
RUN --mount=type=bind,source=deploy/images/prepare,target=/prepare /prepare
COPY --from=programs /stage/opt/tessera /opt/tessera
ENV PATH=/opt/tessera/bin:/usr/bin:/bin
USER 10001:10001
WORKDIR /var/lib/tessera
EXPOSE 8470 9470
# If the listener uses TLS, TESSERA_CA_FILE names the authority that the health check trusts.
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 \
    CMD ["tessera", "doctor", "--health", "127.0.0.1:8470"]
ENTRYPOINT ["tessera-coordinator"]
