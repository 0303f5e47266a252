# What a change must pass before it lands.
check:
    bash .ci/run

# Rewrites the expected output of the golden scripts; review the difference like code.
golden:
    UPDATE=1 cargo test -p orrery --test scripts

# The benchmarks, with their anchors.
bench:
    cargo run --release -p bench
