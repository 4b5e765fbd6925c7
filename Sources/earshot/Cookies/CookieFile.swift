internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc

/// File of cookies in the Netscape format, as curl and browsers exchange it.
enum CookieFile {
    /// Maximum size of a file in bytes: as many cookies as a jar holds, each of the maximum length.
    private static let mostBytes = 32 << 20

    private static let title = Array(
        "# Netscape HTTP Cookie File\n# Written by earshot. The values are secret.\n\n".utf8)

    /// Reads the file at `path`.
    ///
    /// - Parameter mayBeMissing: whether a missing file has no cookies.
    static func read(_ path: String, mayBeMissing: Bool) throws(CommandError) -> [FileCookie] {
        if mayBeMissing, unsafe access(ByteText.path(path), F_OK) != 0, errno == ENOENT { return [] }
        return try parse(try InputFile.read(path, atMost: mostBytes), path)
    }

    /// - Parameter path: name of the file in messages.
    static func parse(_ bytes: [UInt8], _ path: String) throws(CommandError) -> [FileCookie] {
        var cookies: [FileCookie] = []
        let lines = InputFile.withoutMark(bytes).split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
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
        guard cookies.count <= HTTPLimits.cookies else {
            throw CommandError(
                .noInput, "\(path) has \(cookies.count) cookies, and a jar holds \(HTTPLimits.cookies); delete some")
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
            try OutputFailure.check(file.output.write(title + cookies.flatMap(\.line)), path)
            try file.commit()
        } catch {
            throw error.commandError("give another --cookie-jar FILE")
        }
    }
}
