#include <stdint.h>

// Empty data of ICU, in place of its 30 MB of languages and time zones. TOMLKit imports Foundation, whose static library
// contains ICU, and the program uses none of its functions. ICU calls such data "stubdata": a table of contents without
// entries, in the form of `DataHeader` and `UDataInfo` in its header udata.h. An ICU function would report missing data.
struct icu_data {
    uint16_t header_bytes;
    uint8_t magic[2];
    uint16_t info_bytes, reserved;
    uint8_t is_big_endian, charset, character_bytes, reserved_byte;
    uint8_t format[4], format_version[4], data_version[4];
    uint8_t padding[8];
    uint32_t count, end;
    uint32_t entries[4];
};

#define ICU_DATA \
    { .header_bytes = 32, .magic = {0xda, 0x27}, .info_bytes = 20, .character_bytes = 2, \
      .is_big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__, .format = {'T', 'o', 'C', 'P'}, .format_version = {1} }

// One name for each version of ICU in the supported versions of Swift. Hidden, because Foundation as a shared library
// must find its own data.
#define ICU_NAME(name) __attribute__((visibility("hidden"))) extern const struct icu_data name; \
    const struct icu_data name = ICU_DATA;
ICU_NAME(icudt74_dat)
ICU_NAME(icudt76_dat)
