internal import EarshotBroker
internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// File of cookies in the Netscape format, as curl and browsers exchange it.
enum CookieFile {
    /// Maximum size of a file in bytes: as many cookies as a jar holds, each of the maximum length.
    private static let maximumFileBytes = 32 << 20

    private static let fileHeader = Array(
        "# Netscape HTTP Cookie File\n# Written by earshot. The values are secret.\n\n".utf8)

    /// Reads the file at `path`.
    ///
    /// - Parameter mayBeMissing: whether a missing file has no cookies.
    static func read(_ path: String, mayBeMissing: Bool) throws(CommandError) -> [FileCookie] {
        if mayBeMissing, unsafe access(ByteText.cString(path), F_OK) != 0, errno == ENOENT { return [] }
        return try parse(try InputFile.read(path, atMost: maximumFileBytes), path)
    }

    /// - Parameter path: name of the file in messages.
    static func parse(_ bytes: [UInt8], _ path: String) throws(CommandError) -> [FileCookie] {
        var cookies: [FileCookie] = []
        let lines = InputFile.withoutByteOrderMark(bytes).split(
            separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            do throws(FileCookie.Fault) {
                let line = line.last == UInt8(ascii: "\r") ? line.dropLast() : line
                if let cookie = try FileCookie(line: line) { cookies.append(cookie) }
            } catch {
                throw CommandError(
                    .noInput,
                    "cannot read the cookies of \(path): line \(index + 1): \(error.reason); correct or delete it")
            }
        }
        guard cookies.count <= HTTPLimits.cookiesPerJar else {
            throw CommandError(
                .noInput,
                "\(path) has \(cookies.count) cookies, and a jar holds \(HTTPLimits.cookiesPerJar); delete some")
        }
        return cookies
    }

    /// Replaces the file at `path`, which only its owner can then read.
    static func write(_ cookies: [FileCookie], to path: String) throws(CommandError) {
        do throws(OutputFailure) {
            guard case .file(let target) = try OutputPath(path) else {
                throw .cannotWrite("cannot write \(path): it is not a regular file")
            }
            let file = try NewFile(for: target, isPrivate: true)
            try OutputFailure.throwIfFailed(file.output.write(fileHeader + cookies.flatMap(\.fileLine)), path)
            try file.commit()
        } catch {
            throw error.commandError("give another --cookie-jar FILE")
        }
    }
}

/// Cookie in a file of the Netscape format: a line with seven fields, separated by tabs.
struct FileCookie: Equatable {
    /// Reason why a line is no cookie. It repeats no part of the line, because the value is secret.
    struct Fault: Error, Equatable {
        let reason: String

        init(_ reason: String) { self.reason = reason }
    }

    /// Mark of a cookie that scripts must not see, before the domain.
    private static let httpOnlyMark = Array("#HttpOnly_".utf8)
    /// Maximum length of a path in bytes. The jar ignores a longer one.
    private static let maximumPathBytes = HTTPLimits.cookieAttributeBytes

    /// Host in ASCII, without a leading dot and without the brackets of an IPv6 address.
    let host: String
    /// Whether it is sent to subdomains of the host.
    let isForSubdomains: Bool
    let path: [UInt8]
    let isSecure: Bool
    let isHTTPOnly: Bool
    /// Expiry in seconds since 1970; nil for a session cookie.
    let expires: Int64?
    let name: [UInt8]
    let value: [UInt8]

    /// Parses a line without its line break. Nil for a comment and for an empty line.
    init?(line: ArraySlice<UInt8>) throws(Fault) {
        isHTTPOnly = line.starts(with: Self.httpOnlyMark)
        let rest = isHTTPOnly ? line.dropFirst(Self.httpOnlyMark.count) : line
        if rest.allSatisfy({ $0 == UInt8(ascii: " ") }) || !isHTTPOnly && rest.first == UInt8(ascii: "#") { return nil }
        let fields = rest.split(separator: UInt8(ascii: "\t"), omittingEmptySubsequences: false)
        // Some programs omit an empty value with its tab.
        guard fields.count == 7 || fields.count == 6 else {
            throw Fault("it has \(fields.count) fields instead of 7, separated by tabs")
        }
        host = try Self.parseHost(fields[0])
        isForSubdomains = try Self.parseFlag(fields[1], "second")
        path = fields[2].isEmpty ? [UInt8(ascii: "/")] : Array(fields[2])
        isSecure = try Self.parseFlag(fields[3], "fourth")
        guard let seconds = Self.parseSeconds(fields[4]) else {
            throw Fault("the fifth field is not a number of seconds since 1970")
        }
        expires = seconds == 0 ? nil : seconds
        name = Array(fields[5])
        value = fields.count == 7 ? Array(fields[6]) : []
        guard path.first == UInt8(ascii: "/"), path.count <= Self.maximumPathBytes else {
            throw Fault("the path does not begin with a slash, or is longer than \(Self.maximumPathBytes) bytes")
        }
        guard (1...HTTPLimits.cookieBytes).contains(name.count + value.count) else {
            throw Fault("name and value are empty, or longer than \(HTTPLimits.cookieBytes) bytes together")
        }
        guard !name.contains(UInt8(ascii: "=")), ![path, name, value].joined().contains(where: Self.isForbiddenByte)
        else {
            throw Fault(
                "a control character or a semicolon is in the path, name or value, or an equals sign in the name")
        }
    }

    /// Reads an entry of the answer to `QUERY cookies`; nil for one that a line cannot represent.
    init?(_ entry: JSONValue) {
        func bytes(_ name: String) -> [UInt8]? { entry.member(name)?.scalarText.map { Array($0.utf8) } }
        guard let host = entry.member("domain")?.scalarText, let path = bytes("path"), let name = bytes("name"),
            let value = bytes("value")
        else { return nil }
        // A server must not begin a line or a field of the file.
        guard ![Array(host.utf8), path, name, value].joined().contains(where: \.isControl) else { return nil }
        self.host = host
        self.path = path
        self.name = name
        self.value = value
        isForSubdomains = entry.member("subdomains")?.scalarText == "true"
        isSecure = entry.member("secure")?.scalarText == "true"
        isHTTPOnly = entry.member("http-only")?.scalarText == "true"
        expires = entry.member("expires")?.scalarText.flatMap { Int64($0) }
    }

    /// Line with its line break.
    var fileLine: [UInt8] {
        let mark = isHTTPOnly ? Self.httpOnlyMark : []
        let fields: [[UInt8]] = [
            mark + Array((isForSubdomains ? "." : "").utf8) + Array(host.utf8), Self.flagText(isForSubdomains), path,
            Self.flagText(isSecure), Array(String(expires ?? 0).utf8), name, value,
        ]
        return Array(fields.joined(separator: [UInt8(ascii: "\t")])) + [UInt8(ascii: "\n")]
    }

    /// URL whose server could have set the cookie.
    var url: String { host.contains(":") ? "https://[\(host)]/" : "https://\(host)/" }

    /// `Set-Cookie` field by which the host could have set the cookie.
    var setCookieField: [UInt8] {
        var field = Array("set-cookie: ".utf8) + name + [UInt8(ascii: "=")] + value + Array("; path=".utf8) + path
        if isForSubdomains { field += "; domain=\(host)".utf8 }
        if isSecure { field += "; secure".utf8 }
        if isHTTPOnly { field += "; httponly".utf8 }
        // A date has four digits for the year. The jar shortens times of more than 400 days.
        if let expires { field += "; expires=\(FileTime.httpDateText(min(max(0, expires), 253_402_300_799)))".utf8 }
        return field
    }

    private static func flagText(_ flag: Bool) -> [UInt8] { Array((flag ? "TRUE" : "FALSE").utf8) }

    private static func isForbiddenByte(_ byte: UInt8) -> Bool { byte.isControl || byte == UInt8(ascii: ";") }

    /// Parses a number of seconds. Some browsers' exports have a fraction, which is dropped.
    private static func parseSeconds(_ field: ArraySlice<UInt8>) -> Int64? {
        let parts = field.split(separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 1 || parts[1].allSatisfy(\.isDigit) else { return nil }
        return Int64(String(decoding: parts[0], as: UTF8.self))
    }

    private static func parseFlag(_ field: ArraySlice<UInt8>, _ ordinal: String) throws(Fault) -> Bool {
        switch String(decoding: field, as: UTF8.self).uppercased() {
        case "TRUE": return true
        case "FALSE": return false
        default: throw Fault("the \(ordinal) field is neither TRUE nor FALSE")
        }
    }

    /// Returns the host of a domain in ASCII, as URLs have it.
    private static func parseHost(_ field: ArraySlice<UInt8>) throws(Fault) -> String {
        let name = String(decoding: field.first == UInt8(ascii: ".") ? field.dropFirst() : field, as: UTF8.self)
        let isAddress = name.contains(":") && !name.hasPrefix("[")
        guard let url = try? FetchURL("https://\(isAddress ? "[\(name)]" : name)/", hostEncoder: .usingLibidn2),
            url.description == "\(url.origin)/"
        else { throw Fault("the first field is not a domain") }
        return url.origin.host
    }
}
