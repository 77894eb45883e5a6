// SHA-256 against vectors of NIST (FIPS 180-4 examples, CAVS short messages, lengths around a block), and fed in pieces.
#include "../runtime/jit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void is(const void *bytes, size_t n, const char *want)
{
    struct sha256 s;
    unsigned char out[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_init(&s);
    sha256_put(&s, bytes, n);
    sha256_end(&s, out);
    sha256_hex(out, hex);
    assert_string_equal(hex, want);
}

static void vectors(void **state)
{
    static const struct {
        const char *text, *digest;
    } texts[] = {
        { "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopq"
          "rstu",
          "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
        { "\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1" },
        { "\xc9\x8c\x8e\x55", "7abc22c0ae5af26ce93dbb94433a0e0b2e119d014f8e7f65bd56c61ccccd9504" },
    };
    static const struct {
        size_t n;
        const char *digest;
    } zeros[] = {
        { 55, "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7" },
        { 56, "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb" },
        { 57, "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785" },
        { 64, "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b" },
        { 1000, "541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53" },
        { 1000000, "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        is(texts[i].text, strlen(texts[i].text), texts[i].digest);
    char *many = calloc(1, 1000000);
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
        is(many, zeros[i].n, zeros[i].digest);
    memset(many, 'a', 1000000);
    is(many, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(many);
}

// Any two cuts give what the whole gives.
static void pieces(void **state)
{
    enum { N = 200 };
    unsigned char text[N], whole[SHA256_BYTES], out[SHA256_BYTES];
    struct sha256 s;
    (void)state;
    for (int i = 0; i < N; i++)
        text[i] = (unsigned char)(i * 37);
    sha256_init(&s);
    sha256_put(&s, text, N);
    sha256_end(&s, whole);
    for (size_t a = 0; a <= N; a++)
        for (size_t b = a; b <= N; b++) {
            sha256_init(&s);
            sha256_put(&s, text, a);
            sha256_put(&s, text + a, b - a);
            sha256_put(&s, text + b, N - b);
            sha256_end(&s, out);
            assert_memory_equal(out, whole, SHA256_BYTES);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(vectors), cmocka_unit_test(pieces) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
