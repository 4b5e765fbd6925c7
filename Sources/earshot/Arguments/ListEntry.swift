internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// URL of a list with its own options, as `URLList` and `ListInput` read it.
struct ListEntry: Equatable {
    var url: String
    /// Options in the order of the list; empty for most URLs.
    var options: [EntryOption] = []

    /// Applies the options to a request for the URL.
    func apply(to fetch: inout Fetch) {
        for option in options {
            switch option {
            case .header(let field): fetch.addHeaderField(field)
            case .checksum(let digest): fetch.options.expectedSHA256 = digest
            case .outputPath, .outputDirectory, .invalid: break
            }
        }
    }

    /// Reason why the entry cannot be fetched; nil for none.
    var fault: String? {
        for case .invalid(let reason) in options { return reason }
        return nil
    }

    /// Whether an option names the file.
    var hasName: Bool { options.contains { if case .outputPath = $0 { true } else { false } } }

    /// Whether an option states the hash of the body.
    var hasChecksum: Bool { options.contains { if case .checksum = $0 { true } else { false } } }

    /// Whether an option names the file or its directory.
    var hasOutputPath: Bool { outputPath(defaultName: "") != nil }

    /// Returns the path of the file below the output directory, from the options `dir` and `out`. Nil without these.
    ///
    /// - Parameter name: name for an entry that has `dir` alone.
    func outputPath(defaultName name: @autoclosure () -> String) -> String? {
        var (folder, file): (String?, String?)
        for option in options {
            switch option {
            case .outputDirectory(let path): folder = path
            case .outputPath(let path): file = path
            case .header, .checksum, .invalid: break
            }
        }
        guard folder != nil || file != nil else { return nil }
        return [folder, file ?? name()].compactMap(\.self).joined(separator: "/")
    }
}

extension Fetch {
    /// Returns whether the request has a header field of this name.
    ///
    /// - Parameter name: name in lower case.
    func hasHeaderField(_ name: String) -> Bool {
        HeaderFields(lines: httpFields).contains(name)
    }

    /// Adds the type of a form to a body of --data, unless the user gave a type.
    mutating func addFormContentType() {
        guard body != nil, !hasHeaderField("content-type") else { return }
        addHeaderField("content-type: application/x-www-form-urlencoded")
    }

    /// Adds a header field of the HTTP request.
    mutating func addHeaderField(_ field: String) {
        if !httpFields.isEmpty { httpFields.append(UInt8(ascii: "\n")) }
        httpFields += ByteText.bytes(of: field)
    }
}

/// Incremental reader of a URL list on standard input.
final class ListInput {
    /// Size of one read, in bytes.
    private static let chunkBytes = 64 << 10
    /// Maximum time between a URL and its options.
    private static let optionTimeout = Duration.milliseconds(20)

    private let loop: EventLoop
    private let onEntries: ([ListEntry]) -> Void
    /// Timer that releases a URL without further options.
    private var releaseTimer: TimerID?
    private var urlList = URLList()
    private var registration: EventLoop.Registration?
    private var buffer = [UInt8](repeating: 0, count: chunkBytes)
    private var isWanted = false
    private var isReading = false
    /// Whether the list has ended.
    private(set) var hasEnded = false
    /// Cause of an early end; nil at the regular end.
    private(set) var fault: CommandError?

    /// - Parameter onEntries: called with the URLs of each read, and at the end.
    init(_ loop: EventLoop, onEntries: @escaping ([ListEntry]) -> Void) {
        self.loop = loop
        self.onEntries = onEntries
    }

    deinit { pause() }

    /// Reads until ``pause()``. A regular file cannot be polled, so it is read at once.
    func resume() {
        isWanted = true
        guard registration == nil, !hasEnded, !isReading else { return }
        awaitEntryOptions()
        do throws(SystemError) {
            registration = try loop.add(STDIN_FILENO, .readable) { [unowned self] _ in readAvailableBytes() }
        } catch {
            isReading = true
            while isWanted, !hasEnded { readAvailableBytes() }
            isReading = false
        }
    }

    /// Stops reading. The writer of standard input then blocks at a full pipe.
    func pause() {
        isWanted = false
        if let registration { loop.remove(registration) }
        registration = nil
        if let releaseTimer { loop.cancelTimer(releaseTimer) }
        releaseTimer = nil
    }

    private func awaitEntryOptions() {
        if let releaseTimer { loop.cancelTimer(releaseTimer) }
        releaseTimer = nil
        guard urlList.hasOpenEntry else { return }
        releaseTimer = loop.setTimer(after: Self.optionTimeout) { [unowned self] in
            releaseTimer = nil
            onEntries(urlList.releaseLastEntry())
        }
    }

    private func readAvailableBytes() {
        let count = unsafe read(STDIN_FILENO, &buffer, buffer.count)
        if count > 0 {
            let entries = urlList.parse(buffer[..<count])
            awaitEntryOptions()
            return onEntries(entries)
        }
        if count < 0, errno == EINTR || errno == EAGAIN { return }
        if count < 0 {
            fault = CommandError(.noInput, unsafe "cannot read standard input: \(String(cString: strerror(errno)))")
        }
        hasEnded = true
        pause()
        onEntries(urlList.finish())
    }
}

/// Option of one URL in a list: an indented line `name=value` below the URL, as in the lists of aria2.
enum EntryOption: Equatable {
    /// Path of the file below the output directory.
    case outputPath(String)
    /// Directory of the file, below the output directory.
    case outputDirectory(String)
    /// Header field, `NAME: VALUE`.
    case header(String)
    /// SHA-256 of the body, 64 lower-case hexadecimal digits.
    case checksum(String)
    /// Reason why the line is no valid option.
    case invalid(String)

    /// Parses an indented line without its indent; nil for a line of another form, such as a URL.
    init?(line: ArraySlice<UInt8>) {
        guard let equals = line.firstIndex(of: UInt8(ascii: "=")), equals > line.startIndex,
            line[..<equals].allSatisfy({ $0.isLowercase || $0.isDigit || $0 == 0x2d })
        else { return nil }
        let name = ByteText.text(of: Array(line[..<equals]))
        let value = ByteText.text(of: Array(line[(equals + 1)...]))
        switch name {
        case "out": self = RelativePath.isInside(value) ? .outputPath(value) : Self.invalidPathOption(name)
        case "dir": self = RelativePath.isInside(value) ? .outputDirectory(value) : Self.invalidPathOption(name)
        case "header":
            self = HTTPOptions.isHeaderField(value) ? .header(value) : .invalid("header: give 'NAME: VALUE'")
        case "checksum":
            self =
                Checksum(argument: value).map { .checksum($0.hex) }
                ?? .invalid("checksum: give sha-256= and 64 hexadecimal digits")
        default: self = .invalid("unknown option '\(name)'; the options of a list are out, dir, header and checksum")
        }
    }

    /// The line for a list, without indent; nil for an invalid option.
    var listLine: String? {
        switch self {
        case .outputPath(let path): "out=\(path)"
        case .outputDirectory(let path): "dir=\(path)"
        case .header(let field): "header=\(field)"
        case .checksum(let digest): "checksum=sha-256=\(digest)"
        case .invalid: nil
        }
    }

    private static func invalidPathOption(_ name: String) -> EntryOption {
        .invalid("\(name): give a relative path without '..'")
    }
}
