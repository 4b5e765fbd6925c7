internal import Glibc

/// What is fuzzed: `wire`, the default, `core`, `stream` or `decoder`; from the environment, EARSHOT_FUZZ_TARGET.
private let target = environment("EARSHOT_FUZZ_TARGET") ?? "wire"

/// Whether there is a trap to be found, to show that finds are told: EARSHOT_FUZZ_CANARY.
let hasCanary = environment("EARSHOT_FUZZ_CANARY") != nil

private func environment(_ name: String) -> String? {
    unsafe getenv(name).map { unsafe String(cString: $0) }
}

/// libFuzzer's door: it calls this with one input after the other, and keeps those that trap.
@_cdecl("LLVMFuzzerTestOneInput")
public func fuzz(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = unsafe [UInt8](UnsafeBufferPointer(start: start, count: count))
    switch target {
    case "core": CoreTarget.run(bytes)
    case "stream": StreamTarget.run(bytes)
    case "decoder": DecoderTarget.run(bytes)
    default: WireTarget.run(bytes)
    }
    return 0
}
