internal import Glibc

/// Fuzz target from the environment variable EARSHOT_FUZZ_TARGET: `wire`, the default, `core`, `pull`, `reader`,
/// `gateway`, `stream`, `decoder`, `reply`, `toml` or `request`.
private let target = environmentValue("EARSHOT_FUZZ_TARGET") ?? "wire"

/// Whether EARSHOT_FUZZ_CANARY requests an artificial trap, to show that the fuzzer reports finds.
let hasCanary = environmentValue("EARSHOT_FUZZ_CANARY") != nil

private func environmentValue(_ name: String) -> String? {
    unsafe getenv(name).map { unsafe String(cString: $0) }
}

/// Entry point of libFuzzer, which calls it for each input and keeps those that trap.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = unsafe [UInt8](UnsafeBufferPointer(start: start, count: count))
    switch target {
    case "core": CoreTarget.run(bytes)
    case "pull": PullTarget.run(bytes)
    case "reader": ReaderTarget.run(bytes)
    case "gateway": GatewayTarget.run(bytes)
    case "stream": StreamTarget.run(bytes)
    case "decoder": DecoderTarget.run(bytes)
    case "reply": ReplyTarget.run(bytes)
    case "request": RequestTarget.run(bytes)
    case "toml": TOMLTarget.run(bytes)
    default: WireTarget.run(bytes)
    }
    return 0
}

/// Choices that the bytes of an input make, for targets that drive a state machine.
struct ByteSource {
    private var remainingBytes: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) { remainingBytes = bytes[...] }

    /// Whether all bytes are used. Choices are then 0.
    var isEmpty: Bool { remainingBytes.isEmpty }

    mutating func byte() -> UInt8 { remainingBytes.popFirst() ?? 0 }

    /// Returns a number less than `limit`, which is at most 256.
    mutating func number(below limit: Int) -> Int { Int(byte()) % limit }

    mutating func boolean() -> Bool { byte() & 1 == 1 }

    mutating func element<Element>(of elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[number(below: elements.count)]
    }

    /// Returns a number of bytes: near 0, near the limits of a DATA, or of any size.
    mutating func sizeNearLimits() -> Int {
        let (form, value) = (byte(), Int(byte()))
        return switch form % 6 {
        case 0: value
        case 1: value << 10
        case 2: (256 << 10) - 128 + value
        case 3: value << 16
        case 4: .max - value
        default: 1 << (value % 63)
        }
    }

    /// Returns the other bytes.
    mutating func takeRemainingBytes() -> [UInt8] {
        defer { remainingBytes = [] }
        return Array(remainingBytes)
    }
}
