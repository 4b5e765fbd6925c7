internal import Glibc

/// Fuzz target from the environment variable EARSHOT_FUZZ_TARGET: `wire`, the default, `core`, `pull`, `reader`,
/// `gateway`, `stream`, `decoder`, `reply`, `toml` or `request`.
private let target = environment("EARSHOT_FUZZ_TARGET") ?? "wire"

/// Whether EARSHOT_FUZZ_CANARY requests an artificial trap, to show that the fuzzer reports finds.
let hasCanary = environment("EARSHOT_FUZZ_CANARY") != nil

private func environment(_ name: String) -> String? {
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
