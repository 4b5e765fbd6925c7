internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import Glibc

/// Settings as arguments of what serves. Their bounds are in the table of `SettingName`.
struct SettingOptions: ParsableArguments {
    @OptionGroup var source: ConfigurationOptions

    @Option(help: "Transfers at once in one worker.")
    var slots: String?

    @Option(help: "Bytes of address space that one worker may have; 4 GiB if not given.")
    var workerMemory: String?

    @Option(help: "Transfers at once to one origin.")
    var originLimit: String?

    @Option(help: "Seconds between two starts at one origin.")
    var originSpacing: String?

    @Option(
        help: ArgumentHelp(
            "A rule for an origin, a HOST or *.HOST, such as 'example.org limit=2 spacing=0.5'; may be repeated.",
            valueName: "rule"))
    var origin: [String] = []

    @Option(help: "HTTP/2 over TLS where the server offers it: auto, or off.")
    var http2: String?

    @Option(help: "Where connections may go: all, or public-only for no address of this machine or an inner network.")
    var addressPolicy: String?

    @Option(
        help: ArgumentHelp(
            "A network, an address, a HOST or *.HOST that may be connected to; may be repeated.", valueName: "address"))
    var allow: [String] = []

    @Option(
        help: ArgumentHelp(
            "A network, an address, a HOST or *.HOST that may not be connected to; may be repeated.",
            valueName: "address"))
    var deny: [String] = []

    @Option(help: "Requests that have not ended, of all clients.")
    var requests: String?

    @Option(help: "Requests that have not ended, of one client.")
    var requestsPerClient: String?

    @Option(help: "Requests that have not ended, of one handler.")
    var requestsPerHandler: String?

    @Option(help: "The longest that a server may ask to be left alone, in seconds.")
    var coolDown: String?

    @Option(help: "Bodies up to so many bytes travel in messages.")
    var inlineBytes: String?

    @Option(help: "Bytes of the body of a request.")
    var requestBodyBytes: String?

    @Option(help: "Seconds that running work has after SIGTERM.")
    var drainSeconds: String?

    @Option(help: "Bytes that the cache keeps at most.")
    var cacheSize: String?

    @Option(help: "Bytes of durable requests and their results at most; 0 for none.")
    var durableSize: String?

    @Option(help: "Seconds that a durable request is kept.")
    var durableTime: String?

    @Option(help: "Seconds that cookies are kept without a handler of their root; 600 if not given.")
    var cookieTime: String?

    @Option(help: "Bytes of bodies that may be in the spool; 10 GiB if not given.")
    var spoolSize: String?

    @Option(help: "Bytes that the spool leaves free on its disk; 256 MiB if not given.")
    var spoolFree: String?

    @Option(help: "Maximum decoded bytes per encoded byte of a body over 16 MiB; 200 if not given, 0 for none.")
    var maxRatio: String?

    @Option(help: "Maximum size of the body of a redirect or an error page, in bytes; 1 MiB if not given.")
    var pageBytes: String?

    func validate() throws { _ = try changes() }

    /// What was given.
    func changes() throws -> [SettingChange] {
        let given: [(SettingName, String?)] = [
            (.slots, slots), (.workerMemory, workerMemory), (.originLimit, originLimit),
            (.originSpacing, originSpacing), (.requests, requests),
            (.requestsPerClient, requestsPerClient), (.requestsPerHandler, requestsPerHandler),
            (.coolDown, coolDown), (.inlineBytes, inlineBytes), (.requestBodyBytes, requestBodyBytes),
            (.spoolSize, spoolSize),
            (.spoolFree, spoolFree), (.maxRatio, maxRatio), (.pageBytes, pageBytes),
            (.drainSeconds, drainSeconds),
            (.cacheSize, cacheSize), (.durableSize, durableSize), (.durableTime, durableTime),
            (.cookieTime, cookieTime),
        ]
        return try given.compactMap { name, text in try text.map { try Self.change([name.rawValue, $0]) } }
            + origin.map { try Self.change(["origin"] + $0.split(separator: " ").map { String($0) }) }
            + [http2].compactMap(\.self).map { try Self.change([SettingName.http2, $0]) }
            + [addressPolicy].compactMap(\.self).map { try Self.change([SettingName.addressPolicy, $0]) }
            + allow.map { try Self.address($0, "allow") } + deny.map { try Self.address($0, "deny") }
    }

    /// What --allow or --deny says.
    private static func address(_ subject: String, _ word: String) throws -> SettingChange {
        do throws(SettingError) {
            return try SettingChange([SettingName.address, subject, word])
        } catch {
            throw ValidationError("--\(word): \(error.description)")
        }
    }

    /// What one option says.
    static func change(_ words: [String]) throws -> SettingChange {
        do throws(SettingError) {
            return try SettingChange(words)
        } catch {
            let sentence = error.description
            throw ValidationError("--" + (sentence.hasPrefix(words[0]) ? sentence : "\(words[0]): \(sentence)"))
        }
    }
}

/// Which files are read.
struct ConfigurationOptions: ParsableArguments {
    @Option(
        help: "A file of settings to read alone, instead of the machine's and the user's; else EARSHOT_CONFIG.",
        completion: .file())
    var config: String?

    /// Absolute, since the folder may be left.
    var file: String? { config.map(Folder.absolute) ?? Self.usualFile }

    /// That of EARSHOT_CONFIG, absolute; nil for none.
    static var usualFile: String? { Environment.value("EARSHOT_CONFIG").map(Folder.absolute) }

    /// What a pool has when nobody says anything.
    static var pool: Configuration.Pool {
        Configuration.Pool(workers: max(2, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))), slots: 64)
    }
}
