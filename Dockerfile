# Two stages: build with Rust, run with little else. Drop-in for Microsoft's emulator images.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --bin orrery

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --create-home orrery && mkdir /data && chown orrery /data
COPY --from=build /src/target/release/orrery /usr/local/bin/orrery
USER orrery
ENV ORRERY_EMULATOR=true ORRERY_DATA=/data
VOLUME /data
EXPOSE 8081 8080
# Bash opens the connection itself: the image needs no other tool for it.
HEALTHCHECK --interval=5s --timeout=3s --start-period=2s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /ready HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["orrery", "serve"]
