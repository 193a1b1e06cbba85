package arch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway/hf"
)

// Keys says what an architecture makes of the keys of config.json. A key that none of the
// lists has is refused: it may change what the model computes.
type Keys struct {
	// Read are the keys that the model is made from.
	Read []string
	// Only are keys that are understood with some values and no others.
	Only map[string][]string
	// Harmless are keys that change no number, each with the reason.
	Harmless map[string]string
}

// Reasons why a key changes no number.
const (
	aboutText    = "it is a default for generating text, which has settings of its own here"
	aboutReturn  = "it says what a call returns, not what is computed"
	aboutLabels  = "it concerns heads that classify, whose weights a language model lacks"
	aboutHow     = "it says how something is computed, not what"
	aboutOrigin  = "it says where the model comes from"
	aboutTokens  = "it is the id of a token, which the tokenizer and the data bring"
	aboutWindows = "the architecture has no windows, in transformers either"
	aboutDecoder = "a model that is a decoder alone does not read it"
)

// commonKeys are those that transformers gives to all architectures.
var commonKeys = Keys{
	Read: []string{"model_type", "architectures", "dtype", "torch_dtype", "initializer_range", "vocab_size", "tie_word_embeddings", "quantization_config"},
	Only: map[string][]string{
		"is_encoder_decoder": {"false"}, "add_cross_attention": {"false"}, "cross_attention_hidden_size": {}, "pruned_heads": {"{}"},
		"layer_types": {`"full_attention"`}, // of every layer
	},
	Harmless: harmless(map[string]string{
		aboutText: "temperature top_k top_p typical_p do_sample num_beams num_beam_groups diversity_penalty early_stopping length_penalty " +
			"repetition_penalty encoder_no_repeat_ngram_size no_repeat_ngram_size max_length min_length max_new_tokens bad_words_ids suppress_tokens " +
			"begin_suppress_tokens forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty num_return_sequences " +
			"output_scores return_dict_in_generate prefix task_specific_params",
		aboutReturn: "output_attentions output_hidden_states return_dict use_return_dict",
		aboutLabels: "num_labels id2label label2id problem_type finetuning_task classifier_dropout classifier_dropout_prob",
		aboutHow: "use_cache attn_implementation attention_implementation torchscript chunk_size_feed_forward gradient_checkpointing use_bfloat16 tf_legacy_loss " +
			"pretraining_tp reorder_and_upcast_attn use_flash_attn",
		aboutOrigin:  "transformers_version name_or_path auto_map tokenizer_class unsloth_version unsloth_fixed unsloth_template model_name",
		aboutTokens:  "bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id cls_token_id mask_token_id decoder_start_token_id",
		aboutDecoder: "is_decoder tie_encoder_decoder",
	}),
}

// harmless is the reason of each key, from lists of keys by reason.
func harmless(byReason map[string]string) map[string]string {
	all := map[string]string{}
	for reason, keys := range byReason {
		for _, key := range strings.Fields(keys) {
			all[key] = reason
		}
	}
	return all
}

// Keys of the Llama family.
var llamaKeys = []string{
	"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings",
	"hidden_act", "rms_norm_eps", "attention_dropout", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor",
	"original_max_position_embeddings",
}

// ropeKeys are the keys inside rope_scaling and rope_parameters that are read, or ignored
// by transformers too for the types of rope that are supported.
var ropeKeys = []string{
	"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor",
	"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor", "finetuned",
}

// check refuses a config with a key that may change what the model computes and is not
// understood.
func (k Keys) check(c *hf.Config) error {
	for _, key := range c.Keys() {
		text, _ := c.Value(key)
		only, limited := k.Only[key]
		if !limited {
			only, limited = commonKeys.Only[key]
		}
		switch {
		case slices.Contains(k.Read, key) || slices.Contains(commonKeys.Read, key):
		case k.Harmless[key] != "" || commonKeys.Harmless[key] != "":
		case strings.HasPrefix(key, "_"): // transformers keeps these for itself
		case limited && allowed(text, only):
		case limited:
			return fmt.Errorf("%s is %.80s, which is not supported; supported: %s", key, text, strings.Join(only, ", "))
		default:
			return fmt.Errorf("config.json has %s, which is not known for this model_type and may change what the model computes; remove it if it does not", key)
		}
	}
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		text, ok := c.Value(key)
		var inside map[string]json.RawMessage
		if !ok || json.Unmarshal(text, &inside) != nil {
			continue // hf has read it
		}
		for _, name := range slices.Sorted(maps.Keys(inside)) {
			if !slices.Contains(ropeKeys, name) && string(inside[name]) != "null" {
				return fmt.Errorf("%s has %s, which is not known and may change what the model computes; remove it if it does not", key, name)
			}
		}
	}
	return nil
}

// allowed says whether a value, or every item of a list, is one of those given.
func allowed(text json.RawMessage, values []string) bool {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return slices.Contains(values, string(text))
	}
	return !slices.ContainsFunc(list, func(item json.RawMessage) bool { return !slices.Contains(values, string(item)) })
}
