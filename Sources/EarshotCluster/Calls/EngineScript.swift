/// Script that the engine runs as one step. Its text is the file of its name in `Scripts`, after `common.lua`.
enum EngineScript: String, CaseIterable, Sendable {
    case want
    case unwant
    case take
    case done
    case cool
    case renew
    case reap
    case survey

    /// Version of the scripts and of the keys' form. Nodes with another version are refused while one is a member.
    static let version = 1

    var text: [UInt8] { PackageResources.common_lua + file }

    private var file: [UInt8] {
        switch self {
        case .want: PackageResources.want_lua
        case .unwant: PackageResources.unwant_lua
        case .take: PackageResources.take_lua
        case .done: PackageResources.done_lua
        case .cool: PackageResources.cool_lua
        case .renew: PackageResources.renew_lua
        case .reap: PackageResources.reap_lua
        case .survey: PackageResources.survey_lua
        }
    }
}
