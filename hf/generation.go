package hf

import "encoding/json"

// TokenIDs is one id in a config file, or a list of them, or null.
type TokenIDs []int32

func (t *TokenIDs) UnmarshalJSON(raw []byte) error {
	var one *int32
	if json.Unmarshal(raw, &one) == nil {
		if one != nil {
			*t = TokenIDs{*one}
		}
		return nil
	}
	return json.Unmarshal(raw, (*[]int32)(t))
}
