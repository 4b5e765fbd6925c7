internal import EarshotClient
internal import EarshotCore

/// Where settings come from, weakest first: what is built in, the machine's file, the user's file, the environment, the
/// arguments. Read again as a whole when SIGHUP comes.
struct Configuration: Sendable {
    /// The only file to read; nil for the machine's and the user's.
    let file: String?
    /// What was said as arguments.
    let flags: [SettingChange]
    /// What a pool of workers has when nobody says anything; nil where there is none.
    let pool: Pool?
    /// Workers at most, whoever says what; nil for any number.
    var mostWorkers: Int?

    /// A pool of workers.
    struct Pool: Sendable {
        let workers: Int
        /// Of each worker.
        let slots: Int
        /// Bytes of address space of each. A worker with 740 transfers has a twentieth of it.
        let memory = 4 << 30
    }

    /// All of it, each value with its source.
    ///
    /// - Throws: `Complaint` when a file or a variable is wrong.
    func read() throws(Complaint) -> Settings {
        var settings = Settings()
        if let pool {
            try apply(.number(.workers, pool.workers), Settings.Source.standard, to: &settings)
            try apply(.number(.slots, pool.slots), Settings.Source.standard, to: &settings)
            try apply(.number(.workerMemory, pool.memory), Settings.Source.standard, to: &settings)
        }
        for path in paths {
            guard let changes = try ConfigurationFile.read(path) else {
                if file != nil { throw Complaint(.configuration, "\(path): there is no such file") }
                continue
            }
            for change in changes { try apply(change, path, to: &settings) }
        }
        for name in SettingName.allCases {
            guard let text = Environment.value(Self.variable(name)) else { continue }
            let change: SettingChange
            do throws(SettingError) {
                change = .number(name, try name.value(text))
            } catch {
                throw Complaint(.configuration, "\(Self.variable(name)): \(error.description)")
            }
            try apply(change, Self.variable(name), to: &settings)
        }
        for change in flags { try apply(change, Settings.Source.flag, to: &settings) }
        if let mostWorkers, let workers = settings[.workers], workers > mostWorkers {
            try apply(.number(.workers, mostWorkers), Settings.Source.standard, to: &settings)
        }
        return settings
    }

    /// The variable of a setting: `EARSHOT_ORIGIN_LIMIT`.
    static func variable(_ name: SettingName) -> String {
        "EARSHOT_" + name.rawValue.uppercased().replacing("-", with: "_")
    }

    /// The files, weakest first.
    private var paths: [String] {
        if let file { return [file] }
        let own = Environment.value("XDG_CONFIG_HOME") ?? Environment.value("HOME").map { "\($0)/.config" }
        return ["/etc/earshot/config.toml"] + (own.map { ["\($0)/earshot/config.toml"] } ?? [])
    }

    private func apply(
        _ change: SettingChange, _ source: String, to settings: inout Settings
    ) throws(Complaint) {
        // A file can be for both: a broker alone leaves the workers to others.
        if pool == nil, case .number(let name, _) = change, name.isOfSupervisor { return }
        do throws(SettingError) {
            try settings.apply(change, source: source)
        } catch {
            throw Complaint(.configuration, "\(source): \(error.description)")
        }
    }
}
