//! MurmurHash3, by which the service spreads partition keys. Public domain algorithm of Austin
//! Appleby, written after its description; the clients compute the same hashes, so every bit counts.

/// The 32-bit variant for x86 (hash version 1).
pub fn murmur3_x86_32(bytes: &[u8], seed: u32) -> u32 {
    let (blocks, tail) = bytes.as_chunks::<4>();
    let mut hash = seed;
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    if !tail.is_empty() {
        let mut padded = [0; 4];
        padded[..tail.len()].copy_from_slice(tail);
        hash ^= scramble(u32::from_le_bytes(padded));
    }
    hash ^= bytes.len() as u32;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

fn scramble(block: u32) -> u32 {
    block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593)
}

/// The 128-bit variant for x64 (hash version 2): both halves in little-endian order, one behind the
/// other.
pub fn murmur3_x64_128(bytes: &[u8], seed: u32) -> [u8; 16] {
    let (blocks, tail) = bytes.as_chunks::<16>();
    let mut low = u64::from(seed);
    let mut high = u64::from(seed);
    for block in blocks {
        let (first, second) = halves(block);
        low ^= scramble_low(first);
        low = low.rotate_left(27).wrapping_add(high).wrapping_mul(5).wrapping_add(0x52dc_e729);
        high ^= scramble_high(second);
        high = high.rotate_left(31).wrapping_add(low).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // Zeros scramble to zero, so a tail that ends within the first half leaves the other alone.
    let mut padded = [0; 16];
    padded[..tail.len()].copy_from_slice(tail);
    let (first, second) = halves(&padded);
    high ^= scramble_high(second);
    low ^= scramble_low(first);

    low ^= bytes.len() as u64;
    high ^= bytes.len() as u64;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = finish(low);
    high = finish(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);

    let mut hash = [0; 16];
    hash[..8].copy_from_slice(&low.to_le_bytes());
    hash[8..].copy_from_slice(&high.to_le_bytes());
    hash
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn halves(block: &[u8; 16]) -> (u64, u64) {
    let block = u128::from_le_bytes(*block);
    (block as u64, (block >> 64) as u64)
}

fn scramble_low(block: u64) -> u64 {
    block.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn scramble_high(block: u64) -> u64 {
    block.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut half: u64) -> u64 {
    half ^= half >> 33;
    half = half.wrapping_mul(0xff51_afd7_ed55_8ccd);
    half ^= half >> 33;
    half = half.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    half ^ (half >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors_of_32_bits() {
        for (text, seed, expected) in [
            ("", 0, 0),
            ("", 1, 0x514e_28b7),
            ("", 0xffff_ffff, 0x81f1_6f39),
            ("\0\0\0\0", 0, 0x2362_f9de),
            ("aaaa", 0x9747_b28c, 0x5a97_808a),
            ("aaa", 0x9747_b28c, 0x283e_0130),
            ("aa", 0x9747_b28c, 0x5d21_1726),
            ("a", 0x9747_b28c, 0x7fa0_9ea6),
            ("Hello, world!", 0x9747_b28c, 0x2488_4cba),
            ("The quick brown fox jumps over the lazy dog", 0x9747_b28c, 0x2fa8_26cd),
        ] {
            assert_eq!(murmur3_x86_32(text.as_bytes(), seed), expected, "{text:?}");
        }
    }

    #[test]
    fn published_vectors_of_128_bits() {
        let text = |hash: [u8; 16]| {
            let (low, high) = halves(&hash);
            format!("{low:016x}{high:016x}")
        };
        for (input, expected) in [
            ("", "00000000000000000000000000000000"),
            ("hello", "cbd8a7b341bd9b025b1e906a48ae1d19"),
            ("hello, world", "342fac623a5ebc8e4cdcbc079642414d"),
            ("19 Jan 2038 at 3:14:07 AM", "b89e5988b737affc664fc2950231b2cb"),
            ("The quick brown fox jumps over the lazy dog.", "cd99481f9ee902c9695da1a38987b6e7"),
        ] {
            assert_eq!(text(murmur3_x64_128(input.as_bytes(), 0)), expected, "{input:?}");
        }
    }
}
