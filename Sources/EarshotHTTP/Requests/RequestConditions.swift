internal import EarshotWire

/// Conditions of a GET or HEAD on the validators of its response: If-None-Match and If-Modified-Since. RFC 9110,
/// section 13.1.
public struct RequestConditions: Hashable, Sendable {
    /// The fields as the client sent them.
    public let fields: HeaderFields

    /// Maximum size of conditions that are evaluated, in bytes. Longer ones go to the server.
    private static let maximumBytes = 512

    /// Returns whether the conditions make the response a 304: RFC 9110, section 13.2.2, and RFC 9111, section 4.3.2.
    ///
    /// If-Modified-Since counts only without If-None-Match. A response without Last-Modified counts as modified at its
    /// Date. Invalid conditions are not met.
    ///
    /// - Parameters:
    ///   - response: Fields of the response, whose status is 200.
    ///   - now: Seconds since 1970.
    public func areMet(by response: HeaderFields, now: Int64) -> Bool {
        let validator = Validator(response: response, now: now)
        let tags = fields.valueBytes(named: "if-none-match")
        guard tags.isEmpty else {
            return FieldList.members(tags).contains { member in
                if member.elementsEqual("*".utf8) { return true }
                guard let candidate = EntityTag(bytes: member), let present = validator.entityTag else { return false }
                return candidate.isWeaklyEqual(to: present)
            }
        }
        guard let text = fields.singleValue(named: "if-modified-since"),
            let since = HTTPDate(bytes: text.span, now: now)?.secondsSince1970,
            let modified = validator.lastModified ?? validator.date
        else { return false }
        return modified <= since
    }

    /// Returns the fields of a 304 in place of a response: those of the response without the ones that describe its
    /// body.
    public static func notModifiedFields(_ response: HeaderFields) -> HeaderFields {
        var fields = response
        fields.removeAll {
            $0.name.prefix(8).map(\.lowercased).elementsEqual("content-".utf8) && !$0.isNamed("content-location")
        }
        return fields
    }

    /// Returns a request without its conditions, and these. Nil for a request without conditions, and for one with
    /// another field that selects the response, whose combination with conditions only the server evaluates.
    public static func separateConditions(
        from request: HTTPRequest
    ) -> (plain: HTTPRequest, conditions: RequestConditions)? {
        guard request.method.canCoalesce, request.url.isHTTP, request.fields.contains(where: isCondition) else {
            return nil
        }
        var plain = request
        plain.fields.removeAll(where: isCondition)
        guard !plain.selectsResponse else { return nil }
        var conditions = HeaderFields()
        for field in request.fields where isCondition(field) { conditions.appendUnchecked(field.name, field.value) }
        guard conditions.bytes.count <= maximumBytes else { return nil }
        return (plain, RequestConditions(fields: conditions))
    }

    private static func isCondition(_ field: HeaderField) -> Bool {
        field.isNamed("if-none-match") || field.isNamed("if-modified-since")
    }
}
