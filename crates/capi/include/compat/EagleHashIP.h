/* 128-bit hashes for comparing values with themselves. They are not those of the original SDK's device. */
#ifndef __EAGLE_HASH_IP_H__
#define __EAGLE_HASH_IP_H__

#ifdef __cplusplus
extern "C" {
#endif

/* Writes 16 bytes to out. */
void Hash128_1_P128(const void *key, int len, unsigned int seed, void *out);
void Hash128_2_P128(const void *key, int len, unsigned int seed, void *out);

#ifdef __cplusplus
}
#endif

#endif /* __EAGLE_HASH_IP_H__ */
