public import ArgumentParser
internal import CBuild
public import EarshotGateway
internal import EarshotLoop
public import EarshotWire
public import Logging
internal import ZeroMQ

// Conversions of command-line words into values. The imports are public because the types are.

extension CommandLine {
    /// Arguments after the program's name. Bytes that are not UTF-8 are kept as ``ByteText``.
    static var argumentsWithoutProgram: [String] {
        (1..<max(1, Int(build_argument_count()))).compactMap { index in
            unsafe build_arguments()[index].map { unsafe ByteText.text(cString: $0) }
        }
    }
}

extension CommandLine {
    /// Separates each `--name=` before `--` into the name and an empty argument. The argument parser would drop the
    /// empty value and use the next argument.
    static func separatingEmptyValues(_ words: [String]) -> [String] {
        let end = words.firstIndex(of: "--") ?? words.endIndex
        return words[..<end].flatMap { word in
            let name = word.dropLast()
            return word.hasPrefix("--") && word.last == "=" && !name.contains("=") ? [String(name), ""] : [word]
        } + words[end...]
    }

    /// Moves a public key that begins with `-`, as one in 85 does, behind `--`, so that `key add` does not read it as
    /// an option.
    static func separatingPublicKey(_ words: [String]) -> [String] {
        guard words.prefix(2) == ["key", "add"], !words.contains("--"),
            let place = words.firstIndex(where: { $0.hasPrefix("-") && CurveClient.isKey($0) })
        else { return words }
        return words[..<place] + words[(place + 1)...] + ["--", words[place]]
    }
}

// Neither package depends on the other, so neither will declare it.
// swift-format-ignore: AvoidRetroactiveConformances
extension Logger.Level: @retroactive ExpressibleByArgument {}

extension LogFormat: ExpressibleByArgument {}

extension ClientKey.Role: ExpressibleByArgument {
    public static var allValueStrings: [String] { keyFileRoles.map(\.rawValue) }

    public init?(argument: String) {
        guard let role = Self(rawValue: argument), Self.keyFileRoles.contains(role) else { return nil }
        self = role
    }
}

extension HandlerID: ExpressibleByArgument {
    public static var defaultCompletionKind: CompletionKind { ShellCompletion.handlerNames }

    public init?(argument: String) { self.init(argument) }
}

extension HandlerPattern: ExpressibleByArgument {
    public static var defaultCompletionKind: CompletionKind { ShellCompletion.handlerPatterns }

    public init?(argument: String) { self.init(argument) }
}

extension RequestID: ExpressibleByArgument {
    public static var defaultCompletionKind: CompletionKind { ShellCompletion.noCompletion }

    public init?(argument: String) { self.init(argument) }
}

extension RequestState: ExpressibleByArgument {}

/// Value of --checksum: the expected SHA-256 of a body.
struct Checksum: ExpressibleByArgument {
    /// Accepted names of the algorithm, each with its separator.
    private static let prefixes = ["sha256:", "sha-256:", "sha-256=", "sha256="]
    static var defaultCompletionKind: CompletionKind { ShellCompletion.noCompletion }

    /// 64 lower-case hexadecimal digits.
    let hex: String

    /// Nil for other algorithms and malformed digits.
    init?(argument: String) {
        let text = argument.lowercased()
        guard let prefix = Self.prefixes.first(where: text.hasPrefix) else { return nil }
        hex = String(text.dropFirst(prefix.count))
        guard SpoolName.isContentAddressed(hex) else { return nil }
    }
}
